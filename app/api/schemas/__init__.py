"""The shapes of requests (pydantic) and answers (msgspec), by noun; the API description is made of them."""

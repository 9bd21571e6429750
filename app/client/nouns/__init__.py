"""The nouns of the API: for each, what its answers look like and what can be asked."""

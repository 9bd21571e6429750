"""Licences that share most of their sentences are told apart, whether or not they say their name."""

import pytest

from workers.handlers.classify_document.scoring import score_text
from workers.handlers.classify_document.shelf import find_taxonomy

COPYRIGHT = "Copyright (c) 2026 Jane Doe\n\n"
MIT_GRANT = """Permission is hereby granted, free of charge, to any person obtaining a copy of this software and
associated documentation files (the "Software"), to deal in the Software without restriction, including without
limitation the rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the Software,
and to permit persons to whom the Software is furnished to do so"""
MIT_NOTICE = """, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial portions of the
Software"""
MIT_WARRANTY = """.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE
WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT."""
ISC_GRANT = """Permission to use, copy, modify, and/or distribute this software for any purpose with or without fee is
hereby granted"""
ISC_NOTICE = ", provided that the above copyright notice and this permission notice appear in all copies"
ISC_WARRANTY = """.

THE SOFTWARE IS PROVIDED "AS IS" AND THE AUTHOR DISCLAIMS ALL WARRANTIES WITH REGARD TO THIS SOFTWARE. IN NO EVENT SHALL
THE AUTHOR BE LIABLE FOR ANY DAMAGES WHATSOEVER RESULTING FROM LOSS OF USE, DATA OR PROFITS, WHETHER IN AN ACTION OF
CONTRACT, NEGLIGENCE OR OTHER TORTIOUS ACTION, ARISING OUT OF OR IN CONNECTION WITH THE USE OF THIS SOFTWARE."""
BSD = """Redistribution and use in source and binary forms, with or without modification, are permitted provided that
the following conditions are met:
1. Redistributions of source code must retain the above copyright notice.
2. Redistributions in binary form must reproduce the above copyright notice.
THIS SOFTWARE IS PROVIDED BY THE COPYRIGHT HOLDERS AND CONTRIBUTORS "AS IS"."""

LICENCES = {
    "mit": COPYRIGHT + MIT_GRANT + MIT_NOTICE + MIT_WARRANTY,
    "mit_0": COPYRIGHT + MIT_GRANT + MIT_WARRANTY,
    "isc": COPYRIGHT + ISC_GRANT + ISC_NOTICE + ISC_WARRANTY,
    "zero_bsd": COPYRIGHT + ISC_GRANT + ISC_WARRANTY,
    "bsd": COPYRIGHT + BSD,
    "gpl": """This program is free software: you can redistribute it and/or modify it under the terms of the GNU General
Public License as published by the Free Software Foundation, either version 3 or any later version.""",
    "lgpl": """This library is free software; you can redistribute it and/or modify it under the terms of the GNU Lesser
General Public License. It is based on the GNU General Public License, see COPYING for that.""",
    "agpl": """You can redistribute it and/or modify it under the terms of the GNU Affero General Public License, which
is the GNU General Public License with one more section.""",
    "apache_2": """Licensed under the Apache License, Version 2.0 (the "License"); you may not use this file except in
compliance with the License. Unless required by applicable law or agreed to in writing, it comes AS IS.""",
    "mpl": """This Source Code Form is subject to the terms of the Mozilla Public License, v. 2.0. If a copy of the MPL
was not distributed with this file, You can obtain one at https://mozilla.org/MPL/2.0/.""",
    "unlicense": "This is free and unencumbered software released into the public domain.\nAnyone is free to copy it.",
    "eupl": "Licensed under the EUPL, Version 1.2. The European Union Public Licence is available in all languages.",
    "other_licence": """END USER LICENSE AGREEMENT
The Licensor hereby grants the Licensee a royalty-free right to use the program, without warranty of any kind.""",
}


@pytest.mark.parametrize("category", LICENCES)
def test_a_licence_is_told_from_its_neighbours(category: str) -> None:
    scores = score_text(find_taxonomy("default", None), LICENCES[category])

    assert scores.category == category, [(one.category, one.score) for one in scores.ranked[:3]]


def test_a_readme_that_quotes_its_whole_licence_is_still_a_readme() -> None:
    readme = f"""# quickparse
A Python library for parsing logs. Documentation and examples are on GitHub.
## Installation
pip install quickparse
## Usage
import quickparse
## Changelog and contributing
Bug reports and pull requests are welcome; the tests run on CPython and PyPy.
## Features
Supports async code, has no dependencies and type hints, and a command line.
## License
{LICENCES["mit"]}"""

    assert score_text(find_taxonomy("default", None), readme).category == "software_description"

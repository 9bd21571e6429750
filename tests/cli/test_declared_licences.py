import pytest

from app.cli.declared_licences import COMPARABLE, declared_category
from workers.handlers.classify_document.shelf import find_taxonomy


@pytest.mark.parametrize(
    ("expression", "category"),
    [
        ("MIT", "mit"),
        ("mit", "mit"),
        ("MIT-0", "mit_0"),
        ("(MIT)", "mit"),
        ("0BSD", "zero_bsd"),
        ("BSD-3-Clause", "bsd"),
        ("Apache-2.0 WITH LLVM-exception", "apache_2"),
        ("GPL-3.0-or-later", "gpl"),
        ("LGPL-2.1+", "lgpl"),
        ("AGPL-3.0-only", "agpl"),
        ("MPL-2.0", "mpl"),
        ("PSF-2.0", "psf"),
        ("ZPL-2.1", "zpl"),
        ("EUPL-1.2", "eupl"),
        ("Apache-2.0 OR BSD-2-Clause", None),
        ("MIT AND PSF-2.0", None),
        ("LicenseRef-Proprietary", None),
        ("MITRE", None),
    ],
)
def test_an_spdx_expression_gives_its_category_unless_it_names_several(expression: str, category: str | None) -> None:
    assert declared_category(expression=expression, free_text="GPL", classifiers=()) == category


@pytest.mark.parametrize(
    ("classifiers", "category"),
    [
        (["License :: OSI Approved :: MIT License"], "mit"),
        (["License :: OSI Approved :: MIT No Attribution License (MIT-0)"], "mit_0"),
        (["License :: OSI Approved :: BSD License"], "bsd"),
        (["License :: OSI Approved :: GNU Lesser General Public License v3 or later (LGPLv3+)"], "lgpl"),
        (["License :: OSI Approved :: GNU Affero General Public License v3"], "agpl"),
        (["License :: OSI Approved :: GNU General Public License v2 (GPLv2)"], "gpl"),
        (["License :: OSI Approved :: GNU Library or Lesser General Public License (LGPL)"], "lgpl"),
        (["License :: OSI Approved :: ISC License (ISCL)"], "isc"),
        (["License :: OSI Approved :: The Unlicense (Unlicense)"], "unlicense"),
        (["License :: OSI Approved :: Zope Public License"], "zpl"),
        (["License :: OSI Approved :: European Union Public Licence 1.2 (EUPL 1.2)"], "eupl"),
        (["License :: OSI Approved :: Mozilla Public License 2.0 (MPL 2.0)"], "mpl"),
        (["License :: OSI Approved :: Python Software Foundation License"], "psf"),
        (["License :: OSI Approved", "License :: OSI Approved :: Apache Software License"], "apache_2"),
        (["License :: OSI Approved :: MIT License", "License :: OSI Approved :: Apache Software License"], None),
        (["License :: Other/Proprietary License"], None),
    ],
)
def test_classifiers_give_a_category_when_they_agree_on_one(classifiers: list[str], category: str | None) -> None:
    assert declared_category(classifiers=classifiers) == category


@pytest.mark.parametrize(
    ("text", "category"),
    [
        ("BSD 2-Clause License", "bsd"),
        ("Apache 2.0", "apache_2"),
        ("Apache License, Version 2.0", "apache_2"),
        ("The MIT License (MIT)", "mit"),
        ("ISC License", "isc"),
        ("LGPLv3+", "lgpl"),
        ("GPLv2", "gpl"),
        ("MPL-2.0", "mpl"),
        ("MIT License\n\nCopyright (c) 2020 …", None),
        ("MIT or Apache-2.0", None),
        ("GPL/MIT", None),
        ("Dual License", None),
        ("UNKNOWN", None),
        ("summit", None),
        ("", None),
        (None, None),
    ],
)
def test_free_text_gives_a_category_when_it_names_one(text: str | None, category: str | None) -> None:
    assert declared_category(free_text=text) == category


def test_every_category_named_here_exists_in_the_shipped_taxonomy() -> None:
    assert set(find_taxonomy("default", None).categories) >= COMPARABLE

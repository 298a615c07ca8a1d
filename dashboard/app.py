"""The pages: every file in views/ is one."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

_FIRST = "now"


def pages() -> list[Path]:
    """The files of the pages, the one for the night first."""
    found = (path for path in (Path(__file__).parent / "views").glob("*.py") if path.stem[0] != "_")
    return sorted(found, key=lambda path: (path.stem != _FIRST, path.stem))


st.set_page_config(page_title="Tidegate", page_icon="🌊", layout="wide", initial_sidebar_state="collapsed")
st.navigation(
    [
        st.Page(path, title=path.stem.replace("_", " ").capitalize(), default=path.stem == _FIRST)
        for path in pages()
    ],
    position="top",
).run()

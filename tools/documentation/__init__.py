"""The documentation site: generated `reference`, all pages (`site`), Sphinx (`build`)."""

"""The pages, one file each; Streamlit runs them as scripts.

The folder is not called ``pages``: Streamlit serves a folder of that name beside the entry point by itself, without the
frame around every page, to whoever opens a link to a page before the entry point has run once.
"""

"""Pictures and words of stored results: Plotly figures, and a study as one page. The dashboard shows them, reports keep them."""

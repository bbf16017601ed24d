"""One chart value, drawn by SVG on the page, by matplotlib in figures and by characters in a terminal."""

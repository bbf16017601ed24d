"""One chart value, drawn by SVG on the page and by matplotlib in figures; and charts of characters in a terminal."""

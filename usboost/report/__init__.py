"""Reports: blocks and figures of records, and the pages that choose them."""

"""What the training flow's files say, as a table (`results`), figures and one page (`html`)."""

"""The paper's protocol on labelled graphs: methods and quantifiers side by side."""

mod asked;
mod counted;

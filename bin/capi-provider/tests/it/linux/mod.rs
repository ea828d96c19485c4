//! The decisions about Linux servers, driven through a world that crashes, forgets and answers too late.

mod replica;
mod world;

mod cases;

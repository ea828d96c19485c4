//! SSH.

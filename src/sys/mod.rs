//! sys

pub mod lifetime;

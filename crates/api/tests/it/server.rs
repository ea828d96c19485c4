//! What a real apiserver makes of our kinds, and Helm of the chart that brings them.

mod chart;
mod examples;
mod fixtures;

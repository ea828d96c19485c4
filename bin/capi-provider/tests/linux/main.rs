//! Linux cache nodes on real parts: ordered by Cluster API, set up by the very program of production, and gone without a trace.

#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests stand outside of #[test] functions, where these lints take them for production code"
)]

mod left;
mod life;
mod roaming;

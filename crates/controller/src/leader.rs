//! Leader election by Lease: at most one process acts.
//!
//! Two controllers that both believe they lead order two machines and wipe one host twice. The guarantee here is not "soon
//! there is one leader" but "a process whose Lease may have passed on does not write":
//!
//! ```text
//!   holder   send renew ──────────── renew deadline │ writes refused ······
//!                 └▶ Lease written                  │
//!   standby          sees the change ────── lease duration ──────▶│ may take over
//!            invariant:  renew deadline < lease duration
//! ```
//!
//! The holder counts from *before* it sent the renewal, the standby from *after* it saw the renewal, each on its own
//! monotonic clock. Remote timestamps are never compared with a local clock, so clock skew cannot break this; only clocks
//! that run at very different speeds could.
//!
//! The right to write is [`Leadership`]: a deadline that is compared at each request, not a flag that a timer must clear. A
//! process that was paused past its deadline finds out on its first write, before any of its timers has run. See
//! [`fence`](crate::leader::Fence) for where the comparison happens.
//!
//! **Guarantees.** No request is handed to the connection after the deadline. A lost Lease is never taken again by the same
//! process: it ends with an error and starts clean. A graceful stop releases the Lease, so the hand-over takes one poll.
//! **Assumption.** The monotonic clock runs while the process is stopped (`SIGSTOP`). It may stand still while the whole
//! machine sleeps, which stops every other effect of the process as well.
//! **Caveat.** A request already in the kernel's socket buffer when the process is paused can still arrive.

mod decision;
mod election;
mod guard;
pub(crate) mod wire;

pub use decision::{Action, Record, Timing, TimingError, decide};
pub use election::{Acquired, Election, Error, News, Options};
pub use guard::{Fence, FenceLayer, Leadership, NotLeading};

//! Who may read or write what in the build cache.
//!
//! ```text
//!  request ──► Credential::from_headers ──┐
//!          └─► Scope::parse ──────────────┴─► Authorizer::decide_now ──► Allow | Deny(Denial)
//!                                                     │ NeedsBackend
//!                                                     ▼
//!                                              Authorizer::decide (async, one flight per credential)
//! ```
//!
//! - [`scope`], [`handle`]: what a request is about, parsed by one parser whose result both authorisation and storage use.
//! - [`credential`]: the secret a caller presents; cannot be printed.
//! - [`grants`]: what a token says its bearer may do.
//! - [`config`], [`settings`]: anonymous access, static tokens, signed tokens, the control plane; validated.
//! - [`authorizer`]: the decision, and the memory of answers that keeps it below a microsecond.
//! - [`denial`]: a refusal in the words of HTTP and gRPC.
//! - [`observer`]: hooks for metrics. [`clock`]: time as an argument.
//!
//! # What is promised
//! - **Fail closed.** If nobody can be asked the answer is 503, never an allow.
//! - **Revocation.** What the control plane vouched for is believed for at most [`config::MAX_REVOCATION`] counted from the
//!   moment the question was sent, also while the control plane is down. What a signature vouches for is believed until
//!   the token's own `exp`, unless [`config::SignedTokens::AlsoIntrospect`] puts it under the same bound. Removing a
//!   static token or a key from its file takes effect with the next reading of the file, two seconds later at most.
//! - **Isolation.** A grant of an account does not cover its projects, nor the reverse; a node that serves one account
//!   refuses every other before it looks at grants.
//! - **Silence.** No error, log line or `Debug` output holds a token, a key or a client secret.

mod backend;
mod evidence;
mod jwt;
mod lru;
mod memory;
mod tokens;
mod verifiers;

pub mod authorizer;
pub mod clock;
pub mod config;
pub mod credential;
pub mod denial;
pub mod grants;
pub mod handle;
pub mod observer;
pub mod scope;
pub mod settings;

pub use authorizer::{Authorizer, Decision};
pub use clock::{Clock, Moment, SystemClock};
pub use config::{Anonymous, Config};
pub use credential::Credential;
pub use denial::{Denial, GrpcCode, Refusal};
pub use grants::Grants;
pub use handle::account_handle;
pub use observer::{Deaf, Observer};
pub use russet_api::values::AccountHandle;
pub use scope::{Access, Scope};
pub use settings::Settings;
pub use tokens::StaticToken;

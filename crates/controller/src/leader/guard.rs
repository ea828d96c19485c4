//! The right to write, checked at each request.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Instant;

use futures::future::{Either, Ready, ready};
use http::{Method, Request};
use tokio_util::sync::CancellationToken;
use tower::{BoxError, Layer, Service};

/// A write was refused because this process may no longer be (or is not yet) the leader.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{identity} does not hold the Lease (any more), so nothing is written; the leader will do it")]
pub struct NotLeading {
    /// Who we are.
    pub identity: String,
}

/// Not leading yet.
const STANDBY: u64 = 0;
/// Lost or given up. Final.
const REVOKED: u64 = 1;
/// No election takes place; writing is always allowed.
const ALWAYS: u64 = u64::MAX;

/// A cheap handle on the right to write.
#[derive(Clone)]
pub struct Leadership(Arc<Inner>);

struct Inner {
    identity: String,
    /// Deadlines are nanoseconds after this instant, plus two so as not to collide with the markers above.
    origin: Instant,
    deadline: AtomicU64,
    lost: CancellationToken,
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leadership")
            .field("identity", &self.0.identity)
            .field("leading", &self.is_leading())
            .finish_non_exhaustive()
    }
}

impl Leadership {
    /// For processes that run without an election.
    pub fn always(identity: impl Into<String>) -> Self {
        Self::with(identity, ALWAYS)
    }

    /// Not leading until an [`Election`](super::Election) says so.
    pub fn standby(identity: impl Into<String>) -> Self {
        Self::with(identity, STANDBY)
    }

    fn with(identity: impl Into<String>, deadline: u64) -> Self {
        Self(Arc::new(Inner {
            identity: identity.into(),
            origin: Instant::now(),
            deadline: AtomicU64::new(deadline),
            lost: CancellationToken::new(),
        }))
    }

    /// Who we are in the Lease.
    pub fn identity(&self) -> &str {
        &self.0.identity
    }

    /// Fails when this process must not write. Reads the clock, so it is right even before any timer ran.
    pub fn check(&self) -> Result<(), NotLeading> {
        self.check_at(Instant::now())
    }

    /// Whether this process may write now.
    pub fn is_leading(&self) -> bool {
        self.check().is_ok()
    }

    /// Whether this process led once and must never write again. A standby has not ended; it may still ask.
    pub(super) fn has_ended(&self) -> bool {
        match self.0.deadline.load(Ordering::Acquire) {
            STANDBY | ALWAYS => false,
            REVOKED => true,
            deadline => self.nanos(Instant::now()) >= deadline,
        }
    }

    /// Fires once, when leadership is lost or given up.
    pub fn lost(&self) -> &CancellationToken {
        &self.0.lost
    }

    fn check_at(&self, now: Instant) -> Result<(), NotLeading> {
        let allowed = match self.0.deadline.load(Ordering::Acquire) {
            STANDBY | REVOKED => false,
            ALWAYS => true,
            deadline => self.nanos(now) < deadline,
        };
        if allowed {
            Ok(())
        } else {
            Err(NotLeading {
                identity: self.0.identity.clone(),
            })
        }
    }

    /// Allows writes until `deadline`. Does nothing after [`Leadership::revoke`]: a lost Lease stays lost.
    pub(super) fn extend(&self, deadline: Instant) {
        let nanos = self.nanos(deadline);
        // The closure returns None, and the value stays, for the two final states.
        let _ = self
            .0
            .deadline
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |current| {
                (current != REVOKED && current != ALWAYS).then_some(nanos)
            });
    }

    /// Ends the right to write, for good.
    pub(super) fn revoke(&self) {
        self.0.deadline.store(REVOKED, Ordering::Release);
        self.0.lost.cancel();
    }

    fn nanos(&self, instant: Instant) -> u64 {
        let since = instant.saturating_duration_since(self.0.origin).as_nanos();
        u64::try_from(since).unwrap_or(ALWAYS - 3).saturating_add(2)
    }

    /// A layer for the Kubernetes client that refuses writes without leadership, whoever makes them.
    pub fn fence(&self) -> FenceLayer {
        FenceLayer {
            leadership: self.clone(),
        }
    }
}

/// Wraps a client's service in a [`Fence`].
#[derive(Debug, Clone)]
pub struct FenceLayer {
    leadership: Leadership,
}

impl<S> Layer<S> for FenceLayer {
    type Service = Fence<S>;

    fn layer(&self, inner: S) -> Fence<S> {
        Fence {
            inner,
            leadership: self.leadership.clone(),
        }
    }
}

/// The last stop before the connection: reads pass, writes pass only while we lead.
///
/// Sitting in the client itself, it covers code that never heard of leader election, such as an event recorder. The client
/// must not retry below it, or a retry could leave after the deadline; [`crate::manager`] turns that off.
#[derive(Debug, Clone)]
pub struct Fence<S> {
    inner: S,
    leadership: Leadership,
}

impl<S, B> Service<Request<B>> for Fence<S>
where
    S: Service<Request<B>>,
    S::Error: Into<BoxError>,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = Either<Ready<Result<S::Response, BoxError>>, futures::future::ErrInto<S::Future, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let reads = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
        if !reads && let Err(refused) = self.leadership.check() {
            return Either::Left(ready(Err(refused.into())));
        }
        Either::Right(futures::TryFutureExt::err_into(self.inner.call(request)))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tower::{ServiceExt as _, service_fn};

    use super::*;

    #[test]
    fn writing_is_allowed_strictly_before_the_deadline() {
        let leadership = Leadership::standby("a");
        let now = Instant::now();
        assert!(leadership.check_at(now).is_err());
        leadership.extend(now + Duration::from_secs(10));
        assert!(leadership.check_at(now + Duration::from_secs(9)).is_ok());
        assert!(leadership.check_at(now + Duration::from_secs(10)).is_err());
        assert!(
            !leadership.lost().is_cancelled(),
            "the clock alone tells, no timer has run"
        );
    }

    #[test]
    fn a_late_renewal_does_not_bring_a_lost_lease_back() {
        let leadership = Leadership::standby("a");
        leadership.extend(Instant::now() + Duration::from_secs(10));
        leadership.revoke();
        leadership.extend(Instant::now() + Duration::from_secs(10));
        assert!(leadership.check().is_err());
        assert!(leadership.lost().is_cancelled());
    }

    #[test]
    fn without_an_election_writing_is_always_allowed() {
        let leadership = Leadership::always("a");
        leadership.extend(Instant::now());
        assert!(
            leadership
                .check_at(Instant::now() + Duration::from_secs(1 << 40))
                .is_ok()
        );
    }

    #[tokio::test]
    async fn the_fence_lets_reads_through_and_refuses_writes_with_a_typed_error() {
        let leadership = Leadership::standby("a");
        let mut client = leadership
            .fence()
            .layer(service_fn(|_: Request<()>| async { Ok::<_, BoxError>("answer") }));
        let request = |method: Method| Request::builder().method(method).body(()).unwrap();
        for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
            let error = client.ready().await.unwrap().call(request(method)).await.unwrap_err();
            assert!(error.is::<NotLeading>(), "{error}");
        }
        assert_eq!(
            client.ready().await.unwrap().call(request(Method::GET)).await.unwrap(),
            "answer"
        );
        leadership.extend(Instant::now() + Duration::from_secs(10));
        assert_eq!(
            client.ready().await.unwrap().call(request(Method::POST)).await.unwrap(),
            "answer"
        );
    }
}

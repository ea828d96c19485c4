//! The door: every request passes it before its path is even looked up.

use std::time::{Duration, Instant, SystemTime};

use aws_lc_rs::digest;
use http::{HeaderMap, header};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use super::cache::Cache;
use super::{Attributes, Presented, ReviewError, Reviewer, User};

const TOKENS_KEPT: usize = 1024;
const DECISIONS_KEPT: usize = 4096;
const TOKEN_GOOD_FOR: Duration = Duration::from_mins(2);
const YES_GOOD_FOR: Duration = Duration::from_mins(5);
const NO_GOOD_FOR: Duration = Duration::from_secs(30);
/// Reviews of each kind under way at once: strangers with made-up tokens must not become a flood at the apiserver. Nor may they
/// stand in the way of its own requests, which come with a certificate and need a review of rights only.
const REVIEWS: usize = 16;
/// How long a review waits for its turn: as long as for its answer.
const TURN: Duration = Duration::from_secs(10);
/// Larger than any token an apiserver gives out.
const MAX_TOKEN: usize = 16 * 1024;

/// Why a request does not get in.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Denied {
    #[error("Unauthorized")]
    Unauthenticated,
    #[error("Forbidden (user={user}, verb={verb}, resource=nodes, subresource(s)=[{subresources}])")]
    Forbidden {
        user: String,
        verb: &'static str,
        subresources: String,
    },
    #[error("Authorization error (user={user}, verb={verb}, resource=nodes, subresource(s)=[{subresources}])")]
    Unknown {
        user: String,
        verb: &'static str,
        subresources: String,
        source: ReviewError,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Question {
    user: User,
    verb: &'static str,
    subresource: &'static str,
}

#[derive(Debug)]
pub(crate) struct Gate<R> {
    node: String,
    reviewer: R,
    /// By digest: the tokens themselves are not kept.
    tokens: Cache<[u8; 32], Option<User>>,
    decisions: Cache<Question, bool>,
    token_reviews: Semaphore,
    access_reviews: Semaphore,
    patience: Duration,
}

impl<R: Reviewer> Gate<R> {
    pub(crate) fn new(node: String, reviewer: R) -> Self {
        Self {
            node,
            reviewer,
            tokens: Cache::new(TOKENS_KEPT),
            decisions: Cache::new(DECISIONS_KEPT),
            token_reviews: Semaphore::new(REVIEWS),
            access_reviews: Semaphore::new(REVIEWS),
            patience: TURN,
        }
    }

    /// One of the reviews that may be under way. An apiserver that lets them pile up is as good as one that is not reached.
    async fn turn<'a>(&self, reviews: &'a Semaphore) -> Result<SemaphorePermit<'a>, ReviewError> {
        let turn = timeout(self.patience, reviews.acquire())
            .await
            .map_err(|_| ReviewError::Late)?;
        // The semaphores are never closed.
        turn.map_err(|_| ReviewError::Late)
    }

    /// Who asks: by certificate, else by token.
    pub(crate) async fn authenticate(
        &self,
        presented: Option<&Presented>,
        headers: &HeaderMap,
    ) -> Result<User, Denied> {
        if let Some(user) = presented.and_then(|presented| presented.user(SystemTime::now())) {
            return Ok(user.clone());
        }
        let token = bearer(headers).ok_or(Denied::Unauthenticated)?;
        let key = digest::digest(&digest::SHA256, token.as_bytes());
        let key: [u8; 32] = key.as_ref().try_into().map_err(|_| Denied::Unauthenticated)?;
        if let Some(known) = self.tokens.get(&key, Instant::now()) {
            return known.ok_or(Denied::Unauthenticated);
        }
        let reviewed = async {
            let _turn = self.turn(&self.token_reviews).await?;
            self.reviewer.token(token).await
        };
        match reviewed.await {
            Ok(user) => {
                self.tokens.put(key, user.clone(), Instant::now(), TOKEN_GOOD_FOR);
                user.ok_or(Denied::Unauthenticated)
            }
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "a bearer token could not be reviewed"
                );
                Err(Denied::Unauthenticated)
            }
        }
    }

    /// Whether `user` may do it.
    pub(crate) async fn authorise(&self, user: &User, wanted: &Attributes) -> Result<(), Denied> {
        let subresources = || wanted.subresources.join(" ");
        for &subresource in wanted.subresources {
            match self.decide(user, wanted.verb, subresource).await {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(source) => {
                    return Err(Denied::Unknown {
                        user: user.name.clone(),
                        verb: wanted.verb,
                        subresources: subresources(),
                        source,
                    });
                }
            }
        }
        Err(Denied::Forbidden {
            user: user.name.clone(),
            verb: wanted.verb,
            subresources: subresources(),
        })
    }

    async fn decide(&self, user: &User, verb: &'static str, subresource: &'static str) -> Result<bool, ReviewError> {
        let question = Question {
            user: user.clone(),
            verb,
            subresource,
        };
        if let Some(known) = self.decisions.get(&question, Instant::now()) {
            return Ok(known);
        }
        let _turn = self.turn(&self.access_reviews).await?;
        let allowed = self.reviewer.access(user, verb, &self.node, subresource).await?;
        let good_for = if allowed { YES_GOOD_FOR } else { NO_GOOD_FOR };
        self.decisions.put(question, allowed, Instant::now(), good_for);
        Ok(allowed)
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() && token.len() <= MAX_TOKEN).then_some(token)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Knows one token and one right, and counts what it is asked.
    #[derive(Default)]
    struct Books {
        asked: Mutex<Vec<String>>,
    }

    impl Reviewer for &'static Books {
        async fn token(&self, token: &str) -> Result<Option<User>, ReviewError> {
            self.asked.lock().unwrap().push("token".to_owned());
            Ok((token == "good").then(|| User {
                name: "scraper".to_owned(),
                ..User::default()
            }))
        }

        async fn access(&self, user: &User, verb: &str, name: &str, subresource: &str) -> Result<bool, ReviewError> {
            let asked = format!("{} {verb} {name}/{subresource}", user.name);
            self.asked.lock().unwrap().push(asked);
            if subresource == "stats" {
                return Err(ReviewError::Late);
            }
            Ok(subresource == "proxy")
        }
    }

    fn with_token(token: &str) -> HeaderMap {
        [(header::AUTHORIZATION, format!("Bearer {token}").parse().unwrap())]
            .into_iter()
            .collect()
    }

    #[tokio::test]
    async fn answers_are_asked_for_once() {
        let books: &'static Books = Box::leak(Box::default());
        let gate = Gate::new("mac1".to_owned(), books);
        for _ in 0..3 {
            let user = gate.authenticate(None, &with_token("good")).await.unwrap();
            let wanted = Attributes {
                verb: "get",
                subresources: &["pods", "proxy"],
            };
            gate.authorise(&user, &wanted).await.unwrap();
            gate.authenticate(None, &with_token("bad")).await.unwrap_err();
        }
        let asked = books.asked.lock().unwrap().clone();
        assert_eq!(
            asked,
            ["token", "scraper get mac1/pods", "scraper get mac1/proxy", "token"]
        );
    }

    #[tokio::test]
    async fn refusals_say_who_wanted_what() {
        let books: &'static Books = Box::leak(Box::default());
        let gate = Gate::new("mac1".to_owned(), books);
        let user = gate.authenticate(None, &with_token("good")).await.unwrap();
        let wanted = |subresources| Attributes {
            verb: "get",
            subresources,
        };
        let denied = gate.authorise(&user, &wanted(&["metrics"])).await.unwrap_err();
        assert_eq!(
            denied.to_string(),
            "Forbidden (user=scraper, verb=get, resource=nodes, subresource(s)=[metrics])"
        );
        let unknown = gate.authorise(&user, &wanted(&["stats"])).await.unwrap_err();
        assert!(matches!(unknown, Denied::Unknown { .. }));
    }

    /// Answers no review of a token, ever.
    struct Stuck;

    impl Reviewer for Stuck {
        async fn token(&self, _: &str) -> Result<Option<User>, ReviewError> {
            std::future::pending().await
        }

        async fn access(&self, _: &User, _: &str, _: &str, _: &str) -> Result<bool, ReviewError> {
            Ok(true)
        }
    }

    /// Tokens and rights shared their turns, and turns were waited for without end: strangers with made-up tokens and a slow apiserver
    /// kept that apiserver's own requests from being judged.
    #[tokio::test]
    async fn a_flood_of_made_up_tokens_delays_no_decision_and_does_not_pile_up() {
        let mut gate = Gate::new("mac1".to_owned(), Stuck);
        gate.patience = Duration::from_millis(50);
        let gate = std::sync::Arc::new(gate);
        let flood: Vec<_> = (0..REVIEWS)
            .map(|number| {
                let gate = gate.clone();
                let asking = async move { gate.authenticate(None, &with_token(&number.to_string())).await };
                tokio_util::task::AbortOnDropHandle::new(tokio::spawn(asking))
            })
            .collect();
        while gate.token_reviews.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        let wanted = Attributes {
            verb: "create",
            subresources: &["proxy"],
        };
        gate.authorise(&User::default(), &wanted).await.unwrap();
        let late = gate.authenticate(None, &with_token("one too many")).await.unwrap_err();
        assert!(matches!(late, Denied::Unauthenticated));
        assert!(flood.iter().all(|asking| !asking.is_finished()));
    }

    #[tokio::test]
    async fn nobody_is_anonymous() {
        let books: &'static Books = Box::leak(Box::default());
        let gate = Gate::new("mac1".to_owned(), books);
        let basic: HeaderMap = [(header::AUTHORIZATION, "Basic Z29vZA==".parse().unwrap())]
            .into_iter()
            .collect();
        for headers in [
            HeaderMap::new(),
            basic,
            with_token(""),
            with_token(&"x".repeat(MAX_TOKEN + 1)),
        ] {
            let denied = gate.authenticate(None, &headers).await.unwrap_err();
            assert_eq!(denied.to_string(), "Unauthorized");
        }
        assert!(
            books.asked.lock().unwrap().is_empty(),
            "and the apiserver is not bothered with it"
        );
    }
}

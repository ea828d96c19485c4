//! Asking the apiserver.

use std::future::Future;
use std::time::Duration;

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::{Api, PostParams};
use tokio::time::timeout;

use super::User;

/// As long as a stock kubelet waits for a review.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why a review gave no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReviewError {
    /// The apiserver refused, or was not reached.
    #[error(
        "the apiserver did not review the request; is the node allowed to create TokenReviews and SubjectAccessReviews?"
    )]
    Kube(#[source] Box<kube::Error>),
    /// It took too long.
    #[error("the apiserver did not answer a review within {} s", PATIENCE.as_secs())]
    Late,
}

/// Who can tell whom a token belongs to, and who may do what.
pub trait Reviewer: Send + Sync + 'static {
    /// The user of a bearer token, or none if it is not good. The token must not be kept or written anywhere.
    fn token(&self, token: &str) -> impl Future<Output = Result<Option<User>, ReviewError>> + Send;

    /// Whether `user` may `verb` on `nodes/<subresource>` of the node `name`.
    fn access(
        &self,
        user: &User,
        verb: &str,
        name: &str,
        subresource: &str,
    ) -> impl Future<Output = Result<bool, ReviewError>> + Send;
}

/// The real one.
#[derive(Clone)]
pub struct KubeReviewer(kube::Client);

impl std::fmt::Debug for KubeReviewer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("KubeReviewer").finish_non_exhaustive()
    }
}

impl KubeReviewer {
    /// With the node's own identity, which may create both kinds of review.
    pub fn new(client: kube::Client) -> Self {
        Self(client)
    }
}

async fn ask<T>(question: impl Future<Output = kube::Result<T>>) -> Result<T, ReviewError> {
    timeout(PATIENCE, question)
        .await
        .map_err(|_| ReviewError::Late)?
        .map_err(|error| ReviewError::Kube(Box::new(error)))
}

impl Reviewer for KubeReviewer {
    async fn token(&self, token: &str) -> Result<Option<User>, ReviewError> {
        let review = TokenReview {
            spec: TokenReviewSpec {
                token: Some(token.to_owned()),
                ..TokenReviewSpec::default()
            },
            ..TokenReview::default()
        };
        let reviews: Api<TokenReview> = Api::all(self.0.clone());
        let answer = ask(reviews.create(&PostParams::default(), &review)).await?;
        let status = answer.status.unwrap_or_default();
        let user = status.user.filter(|_| status.authenticated == Some(true));
        Ok(user.and_then(|user| {
            Some(User {
                name: user.username.filter(|name| !name.is_empty())?,
                uid: user.uid,
                groups: user.groups.unwrap_or_default(),
                extra: user.extra.unwrap_or_default(),
            })
        }))
    }

    async fn access(&self, user: &User, verb: &str, name: &str, subresource: &str) -> Result<bool, ReviewError> {
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some(user.name.clone()),
                uid: user.uid.clone(),
                groups: Some(user.groups.clone()),
                extra: Some(user.extra.clone()),
                resource_attributes: Some(ResourceAttributes {
                    version: Some("v1".to_owned()),
                    resource: Some("nodes".to_owned()),
                    name: Some(name.to_owned()),
                    subresource: Some(subresource.to_owned()),
                    verb: Some(verb.to_owned()),
                    ..ResourceAttributes::default()
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let reviews: Api<SubjectAccessReview> = Api::all(self.0.clone());
        let answer = ask(reviews.create(&PostParams::default(), &review)).await?;
        Ok(answer
            .status
            .is_some_and(|status| status.allowed && status.denied != Some(true)))
    }
}

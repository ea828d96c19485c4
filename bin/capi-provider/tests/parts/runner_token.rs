//! Runner tokens from a Secret on a real API server and an App of the emulated GitHub.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DeleteParams, ObjectMeta, PostParams};
use russet_api::apple_silicon_machine::GhActionsRunner;
use russet_capi_provider::runner_token::{RunnerTokenArgs, RunnerTokens};
use russet_github::config::Proxy;
use russet_github::resolver::{Error, Resolver};
use russet_sim_github::{AppKey, Deed, Options, Sim};
use russet_testkit::{Sandbox, TestCluster};

const NAME: &str = "builders-github-app";

fn key() -> &'static AppKey {
    static KEY: OnceLock<AppKey> = OnceLock::new();
    KEY.get_or_init(|| AppKey::generate().unwrap())
}

struct World<'a> {
    sandbox: Sandbox<'a>,
    secrets: Api<Secret>,
    sim: Sim,
    tokens: RunnerTokens,
}

impl World<'_> {
    async fn new(name: &str) -> Self {
        let sandbox = TestCluster::shared().await.unwrap().sandbox(name).await.unwrap();
        let client = sandbox.client().await.unwrap();
        let deeds = vec![
            Deed::AddApp {
                app: 7,
                public_key: key().public_pem(),
            },
            Deed::install(7, 42, "tuist"),
        ];
        let sim = Sim::start(Options {
            deeds,
            ..Options::default()
        })
        .await
        .unwrap();
        let args = RunnerTokenArgs {
            github_api_url: sim.url().to_owned(),
        };
        let mut config = args.config().unwrap();
        config.proxy = Proxy::Never;
        let tokens = RunnerTokens::new(client.clone(), config, russet_github::Context::default());
        let secrets = Api::namespaced(client, sandbox.namespace());
        Self {
            sandbox,
            secrets,
            sim,
            tokens,
        }
    }

    /// Creates the Secret, or puts another in its place.
    async fn store(&self, app: &str, installation: &str, private_key: &str) {
        let _ = self.secrets.delete(NAME, &DeleteParams::default()).await;
        let data = [
            ("app-id", app),
            ("installation-id", installation),
            ("private-key", private_key),
        ];
        let data: BTreeMap<String, String> = data.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let secret = Secret {
            metadata: ObjectMeta {
                name: Some(NAME.to_owned()),
                ..ObjectMeta::default()
            },
            string_data: Some(data),
            ..Secret::default()
        };
        self.secrets.create(&PostParams::default(), &secret).await.unwrap();
    }

    async fn mint(&self, runner: &GhActionsRunner) -> Result<String, Error> {
        let token = self.tokens.registration_token(runner, self.sandbox.namespace()).await?;
        Ok(token.expose().clone())
    }
}

fn runner() -> GhActionsRunner {
    GhActionsRunner {
        gh_runner_version: "2.330.0".to_owned(),
        gh_app_secret_name: Some(NAME.to_owned()),
        ..GhActionsRunner::default()
    }
}

#[tokio::test]
async fn a_machine_gets_a_token_with_which_its_host_can_register() {
    let world = World::new("runner-token").await;
    // Incident `pem-and-spaces`: what people paste is seldom clean.
    let pem = key().pkcs8_pem().replace('\n', "\r\n");
    world.store(" 7\n", "42\n", &format!("\n{pem}\n")).await;
    let token = world.mint(&runner()).await.unwrap();
    world
        .sim
        .handle()
        .perform(Deed::Register {
            org: "tuist".to_owned(),
            token,
            name: "mac-1".to_owned(),
            labels: Vec::new(),
        })
        .unwrap();
    for _ in 0..3 {
        world.mint(&runner()).await.unwrap();
    }
    assert_eq!(
        world.sim.handle().calls("POST", "/app/installations/*/access_tokens"),
        1
    );
}

#[tokio::test]
async fn a_secret_that_is_missing_or_wrong_says_what_to_do_and_works_once_it_is_right() {
    let world = World::new("runner-token-wrong").await;
    let unnamed = GhActionsRunner {
        gh_app_secret_name: Some("  ".to_owned()),
        ..runner()
    };
    let error = world.mint(&unnamed).await.unwrap_err();
    assert!(matches!(error, Error::NoSecretName) && error.to_string().contains("ghAppSecretName"));
    let error = world.mint(&runner()).await.unwrap_err();
    assert!(
        matches!(error, Error::NoSecret { .. }) && error.to_string().contains(NAME),
        "{error}"
    );
    for (app, installation, pem, expected) in [
        ("canary", "42", key().pkcs1_pem(), "app-id"),
        ("7", "canary", key().pkcs1_pem(), "installation-id"),
        ("7", "42", "canary".to_owned(), "private-key"),
    ] {
        world.store(app, installation, &pem).await;
        let error = world.mint(&runner()).await.unwrap_err();
        assert!(error.to_string().contains(expected) && !error.is_transient(), "{error}");
        assert!(!format!("{error} {error:?}").contains("canary"), "{error:?}");
    }
    world.store("7", "42", &key().pkcs1_pem()).await;
    let elsewhere = GhActionsRunner {
        gh_org: Some("../tuist".to_owned()),
        ..runner()
    };
    assert!(matches!(world.mint(&elsewhere).await, Err(Error::Org(_))));
    world.mint(&runner()).await.unwrap();
}

/// A client that was made from an old Secret must not outlive it.
#[tokio::test]
async fn a_rotated_key_is_used_at_once() {
    let world = World::new("runner-token-rotated").await;
    world.store("7", "42", &key().pkcs1_pem()).await;
    world.mint(&runner()).await.unwrap();
    let fresh = AppKey::generate().unwrap();
    world.store("7", "42", &fresh.pkcs1_pem()).await;
    let error = world.mint(&runner()).await.unwrap_err();
    assert!(error.to_string().contains("private-key"), "{error}");
    let add = Deed::AddKey {
        app: 7,
        public_key: fresh.public_pem(),
    };
    world.sim.handle().perform(add).unwrap();
    world.mint(&runner()).await.unwrap();
    world.secrets.delete(NAME, &DeleteParams::default()).await.unwrap();
    assert!(matches!(world.mint(&runner()).await, Err(Error::NoSecret { .. })));
}

#[tokio::test]
async fn an_api_server_that_refuses_is_told_apart_from_a_secret_that_is_missing() {
    let world = World::new("runner-token-denied").await;
    world.store("7", "42", &key().pkcs1_pem()).await;
    let granted = world.sandbox.identity("nobody").here(Vec::new()).grant().await.unwrap();
    let kubeconfig = kube::config::Kubeconfig::read_from(&granted.kubeconfig).unwrap();
    let options = kube::config::KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await;
    let client = kube::Client::try_from(config.unwrap()).unwrap();
    let github = russet_github::Config::new(world.sim.url()).unwrap();
    let tokens = RunnerTokens::new(client, github, russet_github::Context::default());
    let error = tokens
        .registration_token(&runner(), world.sandbox.namespace())
        .await
        .unwrap_err();
    assert!(
        matches!(error, Error::Unreadable { .. }) && error.is_transient(),
        "{error}"
    );
    assert!(!format!("{tokens:?}").contains("PRIVATE"));
}

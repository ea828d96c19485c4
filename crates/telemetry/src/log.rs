//! Tracing set-up: readable lines in a terminal, one JSON object per line in a pod.
//!
//! Everything goes to stderr, so that stdout stays free for what a command prints on purpose.

use std::io::IsTerminal as _;
use std::str::FromStr;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// The filter used when none is given: our own progress, and only the warnings of what we are built on.
pub const DEFAULT_FILTER: &str = "info,kube=warn,hyper=warn,h2=warn,tower=warn,rustls=warn";

/// Why logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The filter text does not parse.
    #[error("log filter {filter:?} is not valid; write for example \"info\" or \"info,russet_controller=debug\"")]
    Filter {
        /// The text as given.
        filter: String,
        /// What the parser said.
        source: tracing_subscriber::filter::ParseError,
    },
    /// The format name is unknown.
    #[error("log format {0:?} is not known; use auto, human or json")]
    Format(String),
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Human when stderr is a terminal, JSON otherwise.
    #[default]
    Auto,
    /// Lines for people.
    Human,
    /// One JSON object per line.
    Json,
}

impl FromStr for Format {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "auto" => Ok(Self::Auto),
            "human" | "text" | "console" => Ok(Self::Human),
            "json" => Ok(Self::Json),
            other => Err(Error::Format(other.to_owned())),
        }
    }
}

impl Format {
    /// The format to use, given whether a person is looking.
    #[must_use]
    pub fn resolve(self, terminal: bool) -> Self {
        match self {
            Self::Auto if terminal => Self::Human,
            Self::Auto => Self::Json,
            chosen => chosen,
        }
    }
}

/// What [`init`] needs to know.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// How lines look.
    pub format: Format,
    /// Which events are shown, in `tracing` filter syntax; empty means [`DEFAULT_FILTER`].
    pub filter: String,
}

/// Installs the process-wide subscriber. A second call changes nothing and is not an error, so every test may call it.
pub fn init(options: &Options) -> Result<(), Error> {
    let text = if options.filter.is_empty() {
        DEFAULT_FILTER
    } else {
        &options.filter
    };
    let filter = EnvFilter::builder().parse(text).map_err(|source| Error::Filter {
        filter: text.to_owned(),
        source,
    })?;
    let terminal = std::io::stderr().is_terminal();
    let registry = tracing_subscriber::registry().with(filter);
    let installed = match options.format.resolve(terminal) {
        Format::Json => registry
            .with(
                tracing_subscriber::fmt::layer()
                    .json()
                    .flatten_event(true)
                    .with_current_span(true)
                    .with_span_list(false)
                    .with_writer(std::io::stderr),
            )
            .try_init(),
        Format::Human | Format::Auto => registry
            .with(
                tracing_subscriber::fmt::layer()
                    .with_ansi(terminal)
                    .with_target(false)
                    .with_writer(std::io::stderr),
            )
            .try_init(),
    };
    // The only failure is that a subscriber exists already: the first one wins.
    drop(installed);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_follows_the_terminal_and_an_explicit_choice_wins() {
        assert_eq!(Format::Auto.resolve(true), Format::Human);
        assert_eq!(Format::Auto.resolve(false), Format::Json);
        assert_eq!(Format::Json.resolve(true), Format::Json);
        assert_eq!(Format::Human.resolve(false), Format::Human);
    }

    #[test]
    fn initialising_twice_is_fine() {
        init(&Options::default()).unwrap();
        init(&Options {
            format: Format::Json,
            filter: "debug".into(),
        })
        .unwrap();
    }

    #[test]
    fn a_bad_filter_is_quoted_with_a_good_example() {
        let error = init(&Options {
            filter: "info,[[".into(),
            ..Options::default()
        })
        .unwrap_err();
        assert!(error.to_string().contains("info,[["), "{error}");
        assert!(error.to_string().contains("for example"), "{error}");
    }

    #[test]
    fn format_names_parse() {
        assert_eq!("json".parse::<Format>().unwrap(), Format::Json);
        assert!(
            "yaml"
                .parse::<Format>()
                .unwrap_err()
                .to_string()
                .contains("auto, human or json")
        );
    }
}

//! Whole lists, page by page.

use serde::de::DeserializeOwned;

use super::{Client, TOTAL_COUNT, error, read};
use crate::call::Call;
use crate::error::{Error, Kind};
use crate::pages::{Next, Page, Row, Sweeps};

impl Client {
    /// A whole list; see [`crate::pages`].
    pub(crate) async fn list<P, T>(&self, call: Call) -> Result<Vec<T>, Error>
    where
        P: DeserializeOwned + Into<Page<T>>,
        T: Row,
    {
        self.sweep(call, "page_size", |page: P, _| Some(page.into())).await
    }

    /// A whole list of the Instance API, which counts its rows in a header and has its own name for the size of a page.
    pub(crate) async fn list_counted<P, T>(&self, call: Call) -> Result<Vec<T>, Error>
    where
        P: DeserializeOwned + Into<Vec<T>>,
        T: Row,
    {
        let page = |page: P, counted: Option<u64>| {
            counted.map(|total| Page {
                rows: page.into(),
                total,
            })
        };
        self.sweep(call, "per_page", page).await
    }

    /// Reads until the list is whole. `page` makes a page of an answer and of the count in its header.
    async fn sweep<P, T>(
        &self,
        call: Call,
        size: &'static str,
        page: fn(P, Option<u64>) -> Option<Page<T>>,
    ) -> Result<Vec<T>, Error>
    where
        P: DeserializeOwned,
        T: Row,
    {
        let mut sweeps = Sweeps::default();
        let mut number = 1;
        loop {
            let one = call
                .clone()
                .query("page", number.to_string())
                .query(size, self.0.page_size.to_string());
            let answer = self.perform(&one).await?;
            let read = read(&call, &answer).and_then(|body| {
                // Without a count the rest of the list could be missed.
                page(body, answer.counted).ok_or_else(|| Kind::Unexpected {
                    status: answer.status,
                    message: format!("a list without {TOTAL_COUNT}"),
                })
            });
            match sweeps.accept(read.map_err(|kind| error(&call, kind, answer.request_id))?) {
                Next::Read(next) => number = next,
                Next::ReadAgain => {
                    self.0.context.observer.list_shifted(call.endpoint);
                    number = 1;
                }
                Next::Done(rows) => return Ok(rows),
                Next::Restless { sweeps } => return Err(error(&call, Kind::ListRestless { sweeps }, None)),
            }
        }
    }
}

//! Pages of a list.
//!
//! Each page is cut from the list as it is at that moment, so a list that grows or shrinks between two pages repeats or
//! skips items, exactly as the real one does.

use crate::call::Reply;
use crate::refusal::{Reason, Refusal};
use crate::strict::Query;
use serde_json::{Value, json};

const DEFAULT_SIZE: u32 = 20;
const DEFAULT_PER_PAGE: u32 = 50;
const MAX_SIZE: u32 = 100;

/// Which part of a list was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Page {
    number: u32,
    size: u32,
}

impl Page {
    /// Reads `page` and `page_size`. A cap makes pages smaller than asked for, which the API is free to do.
    pub(crate) fn read(query: &mut Query, cap: Option<u32>) -> Self {
        Self::read_as(query, cap, "page_size", DEFAULT_SIZE)
    }

    /// Reads `page` and `per_page`, as the Instance API spells it.
    pub(crate) fn read_per_page(query: &mut Query, cap: Option<u32>) -> Self {
        Self::read_as(query, cap, "per_page", DEFAULT_PER_PAGE)
    }

    fn read_as(query: &mut Query, cap: Option<u32>, name: &str, default: u32) -> Self {
        let number = query.number("page").unwrap_or(1);
        if number == 0 {
            query.refuse("page", Reason::Constraint, "pages are counted from 1");
        }
        let size = query.number(name).unwrap_or(default);
        if size == 0 || size > MAX_SIZE {
            query.refuse(name, Reason::Constraint, format!("must be from 1 to {MAX_SIZE}"));
        }
        let size = size.min(cap.unwrap_or(MAX_SIZE)).max(1);
        Self { number, size }
    }

    /// The answer of the Instance API: the count is in a header, not in the body.
    pub(crate) fn reply_counted<T>(self, name: &str, items: &[T], draw: impl Fn(&T) -> Value) -> Reply {
        let mut reply = self.reply(name, items, draw);
        if let Some(fields) = reply.body.as_mut().and_then(Value::as_object_mut) {
            fields.remove("total_count");
        }
        reply.headers.push(("x-total-count", items.len().to_string()));
        reply
    }

    /// The answer: this page of `items` under `name`, and how many there are in all. Only what is on the page is drawn.
    pub(crate) fn reply<T>(self, name: &str, items: &[T], draw: impl Fn(&T) -> Value) -> Reply {
        let size = usize::try_from(self.size).unwrap_or(usize::MAX);
        let skipped = usize::try_from(self.number.saturating_sub(1))
            .unwrap_or(usize::MAX)
            .saturating_mul(size);
        let page: Vec<Value> = items.iter().skip(skipped).take(size).map(draw).collect();
        Reply::ok(json!({ name: page, "total_count": items.len() }))
    }
}

/// Reads the page of a list that has no other parameters left, and refuses the rest.
pub(crate) fn last(mut query: Query, cap: Option<u32>) -> Result<Page, Refusal> {
    let page = Page::read(&mut query, cap);
    query.finish()?;
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(reply: &Reply) -> Vec<u64> {
        let body = reply.body.as_ref().unwrap();
        body["x"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| item.as_u64().unwrap())
            .collect()
    }

    #[test]
    fn pages_count_from_one_and_end_empty() {
        let all: Vec<Value> = (0..5).map(Value::from).collect();
        let page = |query: &str| last(Query::new(query), None).map(|page| items(&page.reply("x", &all, Value::clone)));
        assert_eq!(page("page_size=2"), Ok(vec![0, 1]));
        assert_eq!(page("page_size=2&page=3"), Ok(vec![4]));
        assert_eq!(page("page_size=2&page=4"), Ok(vec![]));
        assert!(page("page=0").is_err());
        assert!(page("page_size=0").is_err());
        assert!(page("page_size=101").is_err());
        assert!(page("page=one").is_err());
        assert!(page("per_page=2").is_err(), "that is the Instance API's spelling");
    }

    #[test]
    fn a_cap_makes_pages_smaller_than_asked_for() {
        let all: Vec<Value> = (0..3).map(Value::from).collect();
        let page = last(Query::new("page_size=100&page=2"), Some(1)).unwrap();
        assert_eq!(items(&page.reply("x", &all, Value::clone)), vec![1]);
    }
}

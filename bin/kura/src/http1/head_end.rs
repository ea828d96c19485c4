//! Finds where a request head ends, looking at every byte once however slowly the bytes arrive.
//!
//! Scenario `header-drip`: a client that sends one byte a second must cost one small scan per byte, never a scan of
//! everything that came before, and never a loop that spins while nothing comes.

use super::parser::Refusal;

/// How far the search has come. One value per request head.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Search {
    scanned: usize,
}

impl Search {
    /// The length of the head including its empty line, once it is complete in `buffer`.
    ///
    /// `buffer` must only have grown since the last call. Every line feed must follow a carriage return: a reader that
    /// accepts a bare one and a reader that does not would split the same bytes into different requests.
    pub fn advance(&mut self, buffer: &[u8], limit: usize) -> Result<Option<usize>, Refusal> {
        while let Some(step) = buffer
            .get(self.scanned..)
            .and_then(|fresh| memchr::memchr(b'\n', fresh))
        {
            let at = self.scanned + step;
            self.scanned = at + 1;
            match buffer.get(..at).and_then(|before| before.last()) {
                Some(b'\r') => {}
                _ => return Err(Refusal::BareLineFeed),
            }
            if self.scanned > limit {
                return Err(Refusal::HeadTooLarge);
            }
            if buffer.get(at.saturating_sub(3)..at) == Some(b"\r\n\r") {
                return Ok(Some(at + 1));
            }
        }
        self.scanned = buffer.len();
        if buffer.len() > limit {
            Err(Refusal::HeadTooLarge)
        } else {
            Ok(None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMIT: usize = 1024;

    #[test]
    fn a_complete_head_is_found_at_once_and_what_follows_is_left() {
        let mut search = Search::default();
        assert_eq!(search.advance(b"GET / HTTP/1.1\r\n\r\nGET", LIMIT), Ok(Some(18)));
    }

    #[test]
    fn a_bare_line_feed_is_refused_as_soon_as_it_is_seen() {
        let found = Search::default().advance(b"GET / HTTP/1.1\n", LIMIT);
        assert_eq!(found, Err(Refusal::BareLineFeed));
        assert_eq!(Search::default().advance(b"\n", LIMIT), Err(Refusal::BareLineFeed));
    }

    #[test]
    fn a_head_that_does_not_end_within_the_limit_is_refused() {
        let long = vec![b'a'; LIMIT + 1];
        assert_eq!(Search::default().advance(&long, LIMIT), Err(Refusal::HeadTooLarge));
    }

    proptest! {
        #[test]
        fn any_way_of_cutting_the_bytes_gives_the_same_answer(
            bytes in proptest::collection::vec(prop_oneof![Just(b'\r'), Just(b'\n'), Just(b'a')], 0..40),
            cuts in proptest::collection::vec(0usize..40, 0..6),
        ) {
            let whole = Search::default().advance(&bytes, LIMIT);
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.push(bytes.len());
            cuts.sort_unstable();
            let mut search = Search::default();
            let mut answer = Ok(None);
            for cut in cuts {
                answer = search.advance(&bytes[..cut], LIMIT);
                if answer != Ok(None) {
                    break;
                }
            }
            prop_assert_eq!(answer, whole);
        }
    }
}

//! Requests read in place. Reading one costs no allocation per entry; entries come out of an iterator that borrows.

use crate::digest::Function;
use crate::wire::{BadDigest, Fields, Malformed, RawDigest, Value, set_once};

/// What the requests of the content-addressable storage have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Common<'a> {
    /// The instance; empty is the default one.
    pub instance: &'a str,
    function: u64,
}

impl<'a> Common<'a> {
    const EMPTY: Self = Self {
        instance: "",
        function: 0,
    };

    /// The digest function of all digests.
    pub fn function(&self) -> Result<Function, BadDigest> {
        Function::of_value(self.function).ok_or(BadDigest::Function)
    }

    fn take(&mut self, number: u32, value: Value<'a>, function: u32) -> Result<(), Malformed> {
        if number == 1 {
            self.instance = value.text()?;
        } else if number == function {
            self.function = value.number()?;
        }
        Ok(())
    }
}

/// The digests of a request.
#[derive(Clone, Debug)]
pub struct Digests<'a> {
    fields: Fields<'a>,
}

impl<'a> Iterator for Digests<'a> {
    type Item = Result<RawDigest<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.fields.next()? {
                Ok((2, value)) => return Some(value.bytes().and_then(RawDigest::read)),
                Ok(_) => {}
                Err(malformed) => return Some(Err(malformed)),
            }
        }
    }
}

/// `FindMissingBlobsRequest`
#[derive(Clone, Copy, Debug)]
pub struct FindMissing<'a> {
    /// Instance and function.
    pub common: Common<'a>,
    /// How many digests there are.
    pub count: usize,
    message: &'a [u8],
}

impl<'a> FindMissing<'a> {
    /// Reads everything but the digests, and counts them. The function comes last on the wire, so this pass is needed before
    /// the first digest can be looked up.
    pub fn read(message: &'a [u8]) -> Result<Self, Malformed> {
        let (common, count) = digests(message, 3, |_, _| Ok(()))?;
        Ok(Self { common, count, message })
    }

    /// The digests.
    pub fn digests(&self) -> Digests<'a> {
        Digests {
            fields: Fields::new(self.message),
        }
    }
}

fn digests<'a>(
    message: &'a [u8],
    function: u32,
    mut other: impl FnMut(u32, Value<'a>) -> Result<(), Malformed>,
) -> Result<(Common<'a>, usize), Malformed> {
    let mut common = Common::EMPTY;
    let mut count = 0;
    for field in Fields::new(message) {
        match field? {
            (2, value) => {
                value.bytes()?;
                count += 1;
            }
            (number, value) => {
                common.take(number, value, function)?;
                other(number, value)?;
            }
        }
    }
    Ok((common, count))
}

/// `BatchReadBlobsRequest`
#[derive(Clone, Copy, Debug)]
pub struct BatchRead<'a> {
    /// Instance and function.
    pub common: Common<'a>,
    /// How many digests there are.
    pub count: usize,
    /// The client can read zstd.
    pub zstd: bool,
    message: &'a [u8],
}

impl<'a> BatchRead<'a> {
    /// Reads everything but the digests, and counts them.
    pub fn read(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut zstd = false;
        let (common, count) = digests(message, 4, |number, value| {
            if number == 3 {
                zstd |= value.has_choice(1)?;
            }
            Ok(())
        })?;
        Ok(Self {
            common,
            count,
            zstd,
            message,
        })
    }

    /// The digests.
    pub fn digests(&self) -> Digests<'a> {
        Digests {
            fields: Fields::new(self.message),
        }
    }
}

/// `BatchUpdateBlobsRequest`
#[derive(Clone, Copy, Debug)]
pub struct BatchUpdate<'a> {
    /// Instance and function.
    pub common: Common<'a>,
    /// How many blobs there are.
    pub count: usize,
    message: &'a [u8],
}

/// A blob of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Update<'a> {
    /// Its name.
    pub digest: RawDigest<'a>,
    /// Its bytes as sent.
    pub data: &'a [u8],
    /// `Compressor.Value` of the bytes.
    pub compressor: u64,
}

impl<'a> BatchUpdate<'a> {
    /// Reads everything but the blobs, and counts them.
    pub fn read(message: &'a [u8]) -> Result<Self, Malformed> {
        let (common, count) = digests(message, 5, |_, _| Ok(()))?;
        Ok(Self { common, count, message })
    }

    /// The blobs.
    pub fn updates(&self) -> impl Iterator<Item = Result<Update<'a>, Malformed>> + use<'a> {
        Fields::new(self.message).filter_map(|field| match field {
            Ok((2, value)) => Some(value.bytes().and_then(Update::read)),
            Ok(_) => None,
            Err(malformed) => Some(Err(malformed)),
        })
    }
}

impl<'a> Update<'a> {
    fn read(message: &'a [u8]) -> Result<Self, Malformed> {
        let (mut digest, mut data, mut compressor) = (None, &[][..], 0);
        for field in Fields::new(message) {
            match field? {
                (1, value) => set_once(&mut digest, RawDigest::read(value.bytes()?)?)?,
                (2, value) => data = value.bytes()?,
                (3, value) => compressor = value.number()?,
                _ => {}
            }
        }
        Ok(Self {
            digest: digest.unwrap_or(RawDigest::EMPTY),
            data,
            compressor,
        })
    }
}

/// `GetActionResultRequest`
#[derive(Clone, Debug)]
pub struct GetAction<'a> {
    /// Instance and function.
    pub common: Common<'a>,
    /// The action.
    pub digest: RawDigest<'a>,
    /// Its standard output is wanted with the answer.
    pub inline_stdout: bool,
    /// Its standard error is wanted with the answer.
    pub inline_stderr: bool,
    /// These output files are wanted with the answer.
    pub inline_files: Vec<&'a str>,
}

impl<'a> GetAction<'a> {
    /// Reads the request.
    pub fn read(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut digest = None;
        let mut request = Self {
            common: Common::EMPTY,
            digest: RawDigest::EMPTY,
            inline_stdout: false,
            inline_stderr: false,
            inline_files: Vec::new(),
        };
        for field in Fields::new(message) {
            match field? {
                (2, value) => set_once(&mut digest, RawDigest::read(value.bytes()?)?)?,
                (3, value) => request.inline_stdout = value.number()? != 0,
                (4, value) => request.inline_stderr = value.number()? != 0,
                (5, value) => request.inline_files.push(value.text()?),
                (number, value) => request.common.take(number, value, 6)?,
            }
        }
        request.digest = digest.unwrap_or(RawDigest::EMPTY);
        Ok(request)
    }
}

/// `UpdateActionResultRequest`
#[derive(Clone, Copy, Debug)]
pub struct UpdateAction<'a> {
    /// Instance and function.
    pub common: Common<'a>,
    /// The action.
    pub digest: RawDigest<'a>,
    /// The result, serialized as the client did it.
    pub result: Option<&'a [u8]>,
}

impl<'a> UpdateAction<'a> {
    /// Reads the request.
    pub fn read(message: &'a [u8]) -> Result<Self, Malformed> {
        let (mut common, mut digest, mut result) = (Common::EMPTY, None, None);
        for field in Fields::new(message) {
            match field? {
                (2, value) => set_once(&mut digest, RawDigest::read(value.bytes()?)?)?,
                (3, value) => set_once(&mut result, value.bytes()?)?,
                (number, value) => common.take(number, value, 5)?,
            }
        }
        Ok(Self {
            common,
            digest: digest.unwrap_or(RawDigest::EMPTY),
            result,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::reapi;
    use proptest::prelude::*;
    use prost::Message as _;

    fn digest(text: &str) -> reapi::Digest {
        let digest = Function::Sha256.digest(text.as_bytes());
        reapi::Digest {
            hash: digest.hex(),
            size_bytes: i64::try_from(digest.size).unwrap(),
        }
    }

    #[test]
    fn requests_are_read_as_the_library_wrote_them() {
        let find = reapi::FindMissingBlobsRequest {
            instance_name: "ios".to_owned(),
            blob_digests: vec![digest("a"), digest("bc")],
            digest_function: 9,
        }
        .encode_to_vec();
        let read = FindMissing::read(&find).unwrap();
        assert_eq!((read.common.instance, read.count), ("ios", 2));
        assert_eq!(read.common.function(), Ok(Function::Blake3));
        let sizes: Vec<_> = read.digests().map(|raw| raw.unwrap().size()).collect();
        assert_eq!(sizes, [1, 2]);

        let batch = reapi::BatchReadBlobsRequest {
            digests: vec![digest("a")],
            acceptable_compressors: vec![0, 1],
            ..Default::default()
        }
        .encode_to_vec();
        let read = BatchRead::read(&batch).unwrap();
        assert_eq!((read.common.instance, read.count, read.zstd), ("", 1, true));
        assert_eq!(read.digests().count(), 1);

        let update = reapi::BatchUpdateBlobsRequest {
            instance_name: "x".to_owned(),
            requests: vec![reapi::batch_update_blobs_request::Request {
                digest: Some(digest("data")),
                data: bytes::Bytes::from_static(b"data"),
                compressor: 1,
            }],
            digest_function: 1,
        }
        .encode_to_vec();
        let read = BatchUpdate::read(&update).unwrap();
        let found = read.updates().next().unwrap().unwrap();
        assert_eq!((found.compressor, found.digest.size()), (1, 4));
        assert_eq!(found.data, b"data");
    }

    #[test]
    fn action_requests_keep_the_result_as_it_was_sent() {
        let mut result = reapi::ActionResult {
            exit_code: 3,
            ..Default::default()
        }
        .encode_to_vec();
        // A field of a later version of the protocol.
        result.extend_from_slice(&[0xa2, 0x06, 1, 7]);
        let mut message = reapi::UpdateActionResultRequest {
            instance_name: "i".to_owned(),
            action_digest: Some(digest("a")),
            digest_function: 1,
            ..Default::default()
        }
        .encode_to_vec();
        crate::wire::put_bytes(&mut message, 3, &result);
        assert_eq!(UpdateAction::read(&message).unwrap().result, Some(&result[..]));
        let get = reapi::GetActionResultRequest {
            instance_name: "i".to_owned(),
            action_digest: Some(digest("a")),
            inline_stdout: true,
            inline_output_files: vec!["*".to_owned()],
            ..Default::default()
        }
        .encode_to_vec();
        let get = GetAction::read(&get).unwrap();
        assert!(get.inline_stdout && !get.inline_stderr);
        assert_eq!(get.inline_files, ["*"]);
    }

    #[test]
    fn other_functions_are_refused_by_name() {
        let find = reapi::FindMissingBlobsRequest {
            digest_function: 2,
            ..Default::default()
        }
        .encode_to_vec();
        let function = FindMissing::read(&find).unwrap().common.function();
        assert_eq!(function, Err(BadDigest::Function));
    }

    /// Found when agreement with the library's decoder became a fuzz target: a client that accepts compressor 129 was sent zstd,
    /// since one of the two bytes 129 is written in is a 1.
    #[test]
    fn a_compressor_is_read_as_a_number_and_not_as_bytes() {
        let accepts = |compressors: &[i32]| {
            let request = reapi::BatchReadBlobsRequest {
                acceptable_compressors: compressors.to_vec(),
                ..Default::default()
            };
            BatchRead::read(&request.encode_to_vec()).unwrap().zstd
        };
        assert!(accepts(&[1]) && accepts(&[0, 129, 1]));
        assert!(!accepts(&[129]) && !accepts(&[0]) && !accepts(&[]));
        // Longer than it need be, and one by one.
        assert!(BatchRead::read(&[0x1a, 2, 0x81, 0]).unwrap().zstd);
        assert!(BatchRead::read(&[0x18, 0, 0x18, 1]).unwrap().zstd);
        assert!(BatchRead::read(&[0x1a, 1, 0x81]).is_err());
    }

    /// Fuzzing against the library's decoder found blobs with two names: the library merges the two into one that neither of
    /// them says, we took the last. Now there is one reading.
    #[test]
    fn a_digest_that_is_said_twice_is_refused() {
        let twice = |field| {
            let mut message = Vec::new();
            for text in ["a", "bc"] {
                crate::wire::put_bytes(&mut message, field, &digest(text).encode_to_vec());
            }
            message
        };
        let mut batch = Vec::new();
        crate::wire::put_bytes(&mut batch, 2, &twice(1));
        let read = BatchUpdate::read(&batch).unwrap();
        assert_eq!(read.updates().next(), Some(Err(Malformed)));
        let action = twice(2);
        assert!(GetAction::read(&action).is_err() && UpdateAction::read(&action).is_err());
        assert!(UpdateAction::read(&[0x1a, 0, 0x1a, 0]).is_err());
    }

    proptest! {
        #[test]
        fn hostile_bytes_are_read_or_refused(bytes: Vec<u8>) {
            if let Ok(request) = FindMissing::read(&bytes) {
                prop_assert!(request.digests().count() <= bytes.len());
            }
            if let Ok(request) = BatchRead::read(&bytes) {
                prop_assert!(request.digests().count() <= bytes.len());
            }
            if let Ok(request) = BatchUpdate::read(&bytes) {
                prop_assert!(request.updates().count() <= bytes.len());
            }
            let _ = (GetAction::read(&bytes).is_ok(), UpdateAction::read(&bytes).is_ok());
        }

        #[test]
        fn a_cut_request_is_refused(cut in 1_usize..60) {
            let whole = reapi::FindMissingBlobsRequest { blob_digests: vec![digest("a")], ..Default::default() }.encode_to_vec();
            prop_assert!(FindMissing::read(&whole[..whole.len() - cut]).is_err());
        }
    }
}

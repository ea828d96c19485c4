//! Whole objects, as people and earlier releases wrote them.

#[cfg(test)]
mod examples;
#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod object;
#[cfg(test)]
mod server;

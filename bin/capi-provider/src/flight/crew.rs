//! A flight, and whoever does what it asks for.

use super::{Ask, Course, Flight};
use crate::clock::Clock;
use crate::rules::Rules;

/// Who writes, looks and sends. Macs and Linux servers differ in how; when is decided by the flight.
pub(crate) trait Crew<C: Course> {
    /// Why something could not be written.
    type Error;

    /// Writes the record, if the object is still the one that was decided about; whether it was.
    fn write(&mut self, journal: &C::Journal) -> impl Future<Output = Result<bool, Self::Error>> + Send;

    /// Looks; none if that was not possible.
    fn look(&mut self, target: &C::Target) -> impl Future<Output = Option<C::Sight>> + Send;

    /// Makes the call, once.
    fn send(&mut self, target: &C::Target, call: &C::Call) -> impl Future<Output = C::Answer> + Send;

    /// Writes what became of it, unless another attempt is stored by now.
    fn settle(&mut self, attempt: &str, ending: &C::Ending) -> impl Future<Output = Result<(), Self::Error>> + Send;
}

/// One call, from writing it down to knowing what became of it. What could not be written was not sent.
pub(crate) async fn fly<C: Course, W: Crew<C>>(
    plan: C,
    rules: &Rules,
    clock: &dyn Clock,
    crew: &mut W,
) -> Result<(), W::Error> {
    let mut flight = Flight::new(plan, rules);
    loop {
        match flight.ask(clock.now()) {
            Ask::Write(journal) => {
                let written = crew.write(&journal).await?;
                flight.wrote(written);
            }
            Ask::Get(target) => {
                let sight = crew.look(&target).await;
                flight.got(sight.as_ref(), clock.now());
            }
            Ask::Send(target, call) => {
                let answer = crew.send(&target, &call).await;
                flight.answered(&answer, clock.now());
            }
            Ask::Settle(ending) => {
                let (attempt, _) = flight.plan().attempt();
                crew.settle(attempt, &ending).await?;
                flight.settled();
            }
            Ask::End => return Ok(()),
        }
    }
}

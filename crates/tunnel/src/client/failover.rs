//! Chooses among several servers.

use crate::transport::Lost;
use std::time::Duration;
use tokio::task::JoinSet;

/// Tries `count` servers in their order. Returns the first connection, with the index of its
/// server. Each server has the time `lead` to answer before the client tries the next server; the
/// attempt at the silent server continues meanwhile. Calls `failed` for each failed attempt. Calls
/// `failed` with [`Lost::Silent`] for each server that has not answered before the chosen server
/// answers. Returns the error of the last failed attempt if all servers fail.
pub(super) async fn first_to_connect<T, F>(
    count: usize,
    lead: impl Fn(usize) -> Duration,
    attempt: impl Fn(usize) -> F,
    mut failed: impl FnMut(usize, &Lost),
) -> Result<(usize, T), Lost>
where
    F: Future<Output = Result<T, Lost>> + Send + 'static,
    T: Send + 'static,
{
    let mut tries = JoinSet::new();
    let mut unanswered = Vec::new();
    let mut servers = 0..count;
    let mut next = servers.next();
    let mut last = Lost::Silent;
    loop {
        let pause = match next.take() {
            Some(index) => {
                let attempt = attempt(index);
                tries.spawn(async move { (index, attempt.await) });
                unanswered.push(index);
                lead(index)
            }
            None => Duration::MAX,
        };
        tokio::select! {
            // A connection that has just been made is preferred to another attempt.
            biased;
            tried = tries.join_next() => match tried {
                Some(Ok((index, Ok(connection)))) => {
                    let before = unanswered.iter().filter(|other| **other < index);
                    before.for_each(|other| failed(*other, &Lost::Silent));
                    return Ok((index, connection));
                }
                Some(Ok((index, Err(lost)))) => {
                    failed(index, &lost);
                    unanswered.retain(|other| *other != index);
                    last = lost;
                    next = servers.next();
                }
                Some(Err(error)) => {
                    last = Lost::Failed(error.to_string());
                    next = servers.next();
                }
                // All attempts have failed.
                None => return Err(last),
            },
            () = tokio::time::sleep(pause) => next = servers.next(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, ready};
    use std::pin::Pin;

    type Attempt = Pin<Box<dyn Future<Output = Result<&'static str, Lost>> + Send>>;

    const NEVER: Duration = Duration::MAX;

    fn silent() -> Attempt {
        Box::pin(pending())
    }

    fn answer() -> Attempt {
        Box::pin(ready(Ok("connected")))
    }

    fn refusal() -> Attempt {
        Box::pin(ready(Err(Lost::Refused("no".to_owned()))))
    }

    type Found = Result<(usize, &'static str), Lost>;

    /// Returns the result, and the failures in their order.
    async fn tried(servers: &[fn() -> Attempt], leads: &[Duration]) -> (Found, Vec<(usize, Lost)>) {
        let mut failures = Vec::new();
        let found = first_to_connect(
            servers.len(),
            |index| leads[index],
            |index| servers[index](),
            |index, lost| failures.push((index, lost.clone())),
        );
        (found.await, failures)
    }

    #[tokio::test]
    async fn a_silent_server_delays_the_next_server_for_its_lead_only() {
        let (found, failures) =
            tried(&[silent, silent, answer], &[Duration::ZERO, Duration::ZERO, NEVER]).await;
        assert_eq!(found, Ok((2, "connected")));
        assert_eq!(failures, [(0, Lost::Silent), (1, Lost::Silent)]);
    }

    #[tokio::test]
    async fn a_refusal_lets_the_client_try_the_next_server_at_once() {
        let (found, failures) = tried(&[refusal, answer], &[NEVER, NEVER]).await;
        assert_eq!(found, Ok((1, "connected")));
        assert_eq!(failures, [(0, Lost::Refused("no".to_owned()))]);
    }

    #[tokio::test]
    async fn a_preferred_server_that_answers_within_its_lead_is_used() {
        let (found, failures) = tried(&[answer, answer], &[NEVER, NEVER]).await;
        assert_eq!(found, Ok((0, "connected")));
        assert_eq!(failures, []);
    }

    #[tokio::test]
    async fn a_refusal_by_every_server_is_an_error() {
        let (found, failures) = tried(&[refusal, refusal], &[NEVER, NEVER]).await;
        assert_eq!(found, Err(Lost::Refused("no".to_owned())));
        assert_eq!(failures.len(), 2);
    }

    #[tokio::test]
    async fn no_server_is_an_error() {
        assert_eq!(tried(&[], &[]).await.0, Err(Lost::Silent));
    }
}

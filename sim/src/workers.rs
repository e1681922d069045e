//! The one place where the runners use threads: each works on simulated machines of its own.

/// Runs `work` on `count` threads and collects what they return.
#[allow(
    clippy::disallowed_methods,
    reason = "the simulator's own workers, not the engine's"
)]
pub fn spawn_all<T: Send>(count: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let work = &work;
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..count.max(1))
            .map(|worker| scope.spawn(move || work(worker)))
            .collect();
        let join = |worker: std::thread::ScopedJoinHandle<'_, T>| match worker.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        workers.into_iter().map(join).collect()
    })
}

//! Options of a life: sizes that a few hundred operations fill, and what is on.

use sealstone::env::Env;
use sealstone::{ErrorKind, FilterPolicy, Fold, Options, ReadMode, Store};

use crate::choices::{Choices, Purpose};

/// Draws the options of a life from those of the one before.
pub(super) fn draw(choices: &mut Choices, base: &Options, life: u32) -> Options {
    let c = choices;
    let mut options = base.clone();
    if life == 1 {
        options = options.hash_bits(*c.pick(Purpose::Swarm, &[46, 8, 20, 46, 12]));
    }
    let filters_bytes = *c.pick(Purpose::Swarm, &[1 << 20, 4096, 1 << 20, 512, 0]);
    options = options
        .filter_budget_bytes(filters_bytes)
        .filter_policy(draw_policy(c, filters_bytes))
        .filter_sample_bits(*c.pick(Purpose::Swarm, &[0, 6, 2]))
        .write_region_bytes(1 << 20)
        .seal_bytes(*c.pick(Purpose::Swarm, &[4096, 24576, 12288]))
        .seal_records(4 + c.below(Purpose::Swarm, 120))
        .batch_records_max(16)
        .queue_slots(1 + c.below(Purpose::Swarm, 3))
        .pinned_generations_max(c.below(Purpose::Swarm, 4))
        .descriptors_max(*c.pick(Purpose::Swarm, &[0, 16, 4, 2, 0, 16]))
        .block_records(*c.pick(Purpose::Swarm, &[8, 2, 64]));
    let output_buffer_bytes = *c.pick(Purpose::Swarm, &[512, 256, 4096]);
    options = options
        .output_buffer_bytes(output_buffer_bytes)
        // No draw of its own, which would shift all that are behind it.
        .cold_reads_ahead(output_buffer_bytes == 256)
        .cursor_buffer_bytes(*c.pick(Purpose::Swarm, &[512, 256, 4096]))
        .key_fence_bytes(*c.pick(Purpose::Swarm, &[128, 64, 1024]))
        .manifest_roll_bytes(*c.pick(Purpose::Swarm, &[2048, 256, 8192]))
        .fold(*c.pick(
            Purpose::Swarm,
            &[Fold::Runs(3), Fold::Runs(2), Fold::Runs(8), Fold::Off],
        ))
        .fold_bytes(*c.pick(Purpose::Swarm, &[1024, 768, 65_536]))
        .run_part_records(*c.pick(Purpose::Swarm, &[64, 16, 1024, 1 << 20]))
        .window_bytes(*c.pick(Purpose::Swarm, &[1024, 0, 128, 8192, 512, 65_536]))
        .read_mode(*c.pick(Purpose::Swarm, &[ReadMode::Pread, ReadMode::Mmap]))
        .mappings_max(*c.pick(Purpose::Swarm, &[0, 2]));
    let least = c.chance(Purpose::Swarm, 1, 4);
    if c.chance(Purpose::Scene, 1, 16) {
        // Memory that runs out before the logs do, anywhere in a generation.
        let beyond_bytes = c.below(Purpose::Scene, 1 << 14);
        return with_least_region(options.queue_slots(24), beyond_bytes.into());
    }
    if c.chance(Purpose::Scene, 1, 8) {
        // Many small generations may wait, and together take far more than the floor of memory.
        options = options
            .queue_slots(64)
            .pinned_generations_max(0)
            .seal_bytes(4096);
    }
    match least {
        true => with_least_region(options, 0),
        false => options,
    }
}

/// Which filters are wanted. `All` is refused where the budget may be too small for them.
fn draw_policy(choices: &mut Choices, budget_bytes: u64) -> FilterPolicy {
    let policy = *choices.pick(
        Purpose::Swarm,
        &[
            FilterPolicy::Planned,
            FilterPolicy::NewestFirst,
            FilterPolicy::Planned,
            FilterPolicy::All,
            FilterPolicy::WindowOnly,
            FilterPolicy::Planned,
            FilterPolicy::None,
        ],
    );
    match policy {
        FilterPolicy::All if budget_bytes < 1 << 20 => FilterPolicy::Planned,
        policy => policy,
    }
}

/// The options with the least write region that a store takes with them, which says how much that is, and
/// something beyond it.
fn with_least_region(options: Options, beyond_bytes: u64) -> Options {
    let needed = |options: &Options| {
        let opened = Store::open_with(Env::in_memory(), options.clone());
        match opened.map_err(|error| error.kind().clone()) {
            Err(ErrorKind::TooLarge { needed, .. }) => Some(needed),
            _ => None,
        }
    };
    let Some(least) = needed(&options.clone().write_region_bytes(1 << 16)) else {
        return options;
    };
    let options = options.write_region_bytes(least + beyond_bytes);
    // With room for one more chunk the lists of chunks are longer, and take more than is there if only some
    // bytes of that room are.
    match (beyond_bytes > 0).then(|| needed(&options)).flatten() {
        Some(more) => options.write_region_bytes(more),
        None => options,
    }
}

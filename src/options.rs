//! Options: every size of the engine, with its default and its reason, validated once at open.

use std::time::Duration;

use crate::error::{Error, Result};
use crate::filter::FilterPolicy;
use crate::types::{HASH_BITS, KEY_BYTES_MAX};

/// The total memory of a store that says nothing about it: enough for 40 million keys' filters' worth
/// of budget on a small node, small enough for a library.
const MEMORY_BYTES_DEFAULT: u64 = 64 << 20;

/// The smallest chunk: a record header, a short key and some value.
const CHUNK_BYTES_MIN: u32 = 64;

/// The most that a size in bytes may say: sums of a few of these still count rightly.
const SIZE_BYTES_MAX: u64 = 1 << 40;

/// The longest growth of a manifest: so much room is allocated ahead of it, and its edits are read one by
/// one at an open.
const MANIFEST_ROLL_BYTES_MAX: u64 = 64 << 20;

/// The largest write region.
pub(crate) const WRITE_REGION_BYTES_MAX: u64 = 1 << 36;

/// Who runs background jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Background {
    /// That many threads of the environment's driver.
    Threads(usize),
    /// Nobody: the caller steps them with `runnable` and `run`, and a `write` that can't proceed runs
    /// them itself.
    Manual,
}

/// Whether the indexes of old segments are merged, so that a lookup does not age with their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fold {
    /// When a level has that many runs, 2 to 64, they become one run of the next level. More of them mean
    /// less written and more filters a lookup tests: with n segments and r runs, about r filters for each
    /// of log_r(n) levels.
    Runs(u8),
    /// Never: a lookup tests a filter for each segment. Runs that were folded stay.
    Off,
}

impl Default for Fold {
    fn default() -> Self {
        Self::Runs(8)
    }
}

/// How lookups read sealed files. Answers are the same; all else reads by calls in both modes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadMode {
    /// By a call for each read. What the device fails to deliver is an error.
    #[default]
    Pread,
    /// Through read-only mappings, made when a file is first touched: no call for a lookup in a mapped
    /// file. Every checksum is verified on each access all the same. The price: where the device fails to
    /// deliver a page, or another program cuts a file of the store below its mapping, the process gets
    /// SIGBUS; mapped pages count as the process's memory while the system keeps them. A file beyond
    /// [`Options::mappings_max`], and one that the environment can't map, is read as in `Pread`.
    Mmap,
}

/// What an acknowledged write means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Visible; handed to the operating system. Survives the death of the process, not of the machine.
    Buffered,
    /// Visible and on stable storage.
    Synced,
}

/// How a store is opened. Setters chain; nothing is checked before `Store::open`.
///
/// ```
/// use sealstone::{Background, Options};
/// let options = Options::new().memory_bytes(32 << 20).background(Background::Threads(1));
/// # let _ = options;
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    create: bool,
    read_only: bool,
    memory_bytes: u64,
    write_region_bytes: Option<u64>,
    filter_budget_bytes: Option<u64>,
    filter_policy: FilterPolicy,
    filter_sample_bits: u8,
    scan_bytes: Option<u64>,
    window_bytes: Option<u64>,
    chunk_bytes: u32,
    block_records: u32,
    seal_records: Option<u32>,
    seal_bytes: Option<u64>,
    batch_records_max: Option<u32>,
    batch_bytes_max: Option<u64>,
    pinned_generations_max: u32,
    queue_slots: u32,
    descriptors_max: u32,
    read_mode: ReadMode,
    mappings_max: u32,
    cold_reads_ahead: bool,
    hash_bits: Option<u8>,
    family_seed: Option<[u8; 16]>,
    background: Option<Background>,
    write_deadline: Duration,
    output_buffer_bytes: u32,
    cursor_buffer_bytes: u32,
    key_fence_bytes: u32,
    manifest_roll_bytes: u64,
    retry_delay: Duration,
    fold: Fold,
    fold_bytes: u64,
    run_part_records: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            create: true,
            read_only: false,
            memory_bytes: MEMORY_BYTES_DEFAULT,
            write_region_bytes: None,
            filter_budget_bytes: None,
            filter_policy: FilterPolicy::Planned,
            filter_sample_bits: 6,
            scan_bytes: None,
            window_bytes: None,
            chunk_bytes: 128 << 10,
            block_records: 512,
            seal_records: None,
            seal_bytes: None,
            batch_records_max: None,
            batch_bytes_max: None,
            pinned_generations_max: 1,
            queue_slots: 1,
            descriptors_max: 0,
            read_mode: ReadMode::default(),
            mappings_max: 0,
            cold_reads_ahead: false,
            hash_bits: None,
            family_seed: None,
            background: None,
            write_deadline: Duration::from_secs(60),
            output_buffer_bytes: 256 << 10,
            cursor_buffer_bytes: 64 << 10,
            key_fence_bytes: 4096,
            manifest_roll_bytes: 1 << 20,
            retry_delay: Duration::from_millis(500),
            fold: Fold::default(),
            fold_bytes: 1 << 20,
            run_part_records: 4 << 20,
        }
    }
}

macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident: $type:ty => $field:expr;)*) => {
        $($(#[$doc])*
        #[must_use]
        pub fn $name(mut self, $name: $type) -> Self {
            let set: fn(&mut Self, $type) = $field;
            set(&mut self, $name);
            self
        })*
    };
}

impl Options {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    setters! {
        /// Whether a missing store is created. Default: yes.
        create: bool => |o, v| o.create = v;
        /// Whether the store is opened for reading only: nothing on disk changes, other readers may
        /// have it open too, a writer may not. Default: no.
        read_only: bool => |o, v| o.read_only = v;
        /// All memory, in bytes: by default half of it is the write region, a quarter the filter
        /// budget, an eighth scans, an eighth the window over new segments. Default: 64 MiB.
        memory_bytes: u64 => |o, v| o.memory_bytes = v;
        /// The write region: open, sealed, flushing and pinned generations and the flush's scratch.
        write_region_bytes: u64 => |o, v| o.write_region_bytes = Some(v);
        /// The most that filters may take. See also [`set_filter_budget`](crate::Store::set_filter_budget).
        filter_budget_bytes: u64 => |o, v| o.filter_budget_bytes = Some(v);
        /// Which filters are in memory. Default: those that spare most reads for their bytes.
        filter_policy: FilterPolicy => |o, v| o.filter_policy = v;
        /// The most that the cursors of open iterators may take.
        scan_bytes: u64 => |o, v| o.scan_bytes = Some(v);
        /// The table that says where the records of the newest segments lie, about 10 bytes a record: a key
        /// in one of them takes one read, not two. Taken at open, touched as it fills; below 128: none.
        /// Default: an eighth of `memory_bytes`.
        window_bytes: u64 => |o, v| o.window_bytes = Some(v);
        /// The size of a payload chunk; it must hold the longest key. Default: 128 KiB.
        chunk_bytes: u32 => |o, v| o.chunk_bytes = v;
        /// References per index block. Default: 512.
        block_records: u32 => |o, v| o.block_records = v;
        /// Records after which a generation is sealed. Default: one per KiB of the write region.
        seal_records: u32 => |o, v| o.seal_records = Some(v);
        /// Bytes of log frames after which a generation is sealed. Default: the most that fits.
        seal_bytes: u64 => |o, v| o.seal_bytes = Some(v);
        /// The most operations of a batch. Default: `seal_records`.
        batch_records_max: u32 => |o, v| o.batch_records_max = Some(v);
        /// The most bytes of a batch, as its log frame. Default: `seal_bytes`.
        batch_bytes_max: u64 => |o, v| o.batch_bytes_max = Some(v);
        /// How many generations snapshots and iterators may keep in memory beside the two that always fit.
        ///
        /// Those two may be kept, too: no generation is opened while more than this and one are kept, but the
        /// open one can be, and is one more when it is sealed. So at most this and two are ever kept.
        pinned_generations_max: u32 => |o, v| o.pinned_generations_max = v;
        /// How many sealed generations may wait for the flush. Default: 1.
        queue_slots: u32 => |o, v| o.queue_slots = v;
        /// The most segment files open at once; 0 (the default): three quarters of the process's limit.
        descriptors_max: u32 => |o, v| o.descriptors_max = v;
        /// How lookups read sealed files. Default: by calls.
        read_mode: ReadMode => |o, v| o.read_mode = v;
        /// The most files mapped at once by [`ReadMode::Mmap`], and never more than half of what the
        /// system allows the process; 0 (the default): that half. The rest is for libraries, stacks and
        /// the memory of filters, which count, too.
        mappings_max: u32 => |o, v| o.mappings_max = v;
        /// Whether a lookup that must look into several indexes, and [`multi_get`](crate::Snapshot::multi_get)
        /// for all its keys, tell the system of what they will read before they read the first of it: a disk
        /// then works on all of it at once. For stores larger than the system's cache, with few filters;
        /// a call more for each read where nothing is cold. Default: no.
        cold_reads_ahead: bool => |o, v| o.cold_reads_ahead = v;
        /// Bits of the key hash, 8 to 46, fixed when the store is created: an existing store with
        /// another number is not opened. Default: those of the store, 46 for a new one. Fewer are for
        /// simulations that want collisions.
        hash_bits: u8 => |o, v| o.hash_bits = Some(v);
        /// The seed of the store family, fixed when the store is created: an existing store of another
        /// family is not opened. Equal seeds and commits give equal segment files. Default: that of the
        /// store, for a new one from the environment's entropy.
        family_seed: [u8; 16] => |o, v| o.family_seed = Some(v);
        /// Who runs background jobs. Default: one thread, or `Manual` where the environment has none.
        background: Background => |o, v| o.background = Some(v);
        /// How long `write` waits for memory. Default: 60 s.
        write_deadline: Duration => |o, v| o.write_deadline = v;
        /// The flush's output buffer. Default: 256 KiB.
        output_buffer_bytes: u32 => |o, v| o.output_buffer_bytes = v;
        /// The buffer of a scan's cursor over one segment. Default: 64 KiB.
        cursor_buffer_bytes: u32 => |o, v| o.cursor_buffer_bytes = v;
        /// Record bytes between two key fences of a segment. Default: 4,096.
        key_fence_bytes: u32 => |o, v| o.key_fence_bytes = v;
        /// The manifest is written anew when it has grown by this much, and so much room is allocated ahead
        /// of it: 256 bytes to 64 MiB. Default: 1 MiB.
        manifest_roll_bytes: u64 => |o, v| o.manifest_roll_bytes = v;
        /// How long a failed background job waits before it is tried again. Default: 500 ms.
        retry_delay: Duration => |o, v| o.retry_delay = v;
        /// Whether and when the indexes of old segments are merged. Default: eight runs at a time.
        fold: Fold => |o, v| o.fold = v;
        /// Memory for the entries of a fold's step. Default: 1 MiB.
        fold_bytes: u64 => |o, v| o.fold_bytes = v;
        /// Entries of a folded run's index in one file, about: a larger index is split by hash. Default:
        /// 4 Mi (about 60 MiB).
        run_part_records: u32 => |o, v| o.run_part_records = v;
    }

    /// One lookup in 2^bits, 0 to 6, is counted to weigh filters: 6, one in 64. For simulations, which make
    /// few.
    #[doc(hidden)]
    #[must_use]
    pub fn filter_sample_bits(mut self, bits: u8) -> Self {
        self.filter_sample_bits = bits;
        self
    }

    /// Sizes so small that a few hundred operations reach every shape and limit. For simulations.
    #[doc(hidden)]
    #[must_use]
    pub fn tiny() -> Self {
        Self::default()
            .write_region_bytes(256 << 10)
            .filter_budget_bytes(4096)
            .scan_bytes(256 << 10)
            .window_bytes(1024)
            .chunk_bytes(1024)
            .block_records(8)
            .seal_records(16)
            .seal_bytes(4096)
            .batch_bytes_max(8192)
            .hash_bits(8)
            .background(Background::Manual)
            .output_buffer_bytes(512)
            .cursor_buffer_bytes(512)
            .key_fence_bytes(128)
            .manifest_roll_bytes(2048)
            .fold(Fold::Runs(3))
            .fold_bytes(1024)
            .run_part_records(64)
            .family_seed([7; 16])
    }

    /// Checks everything and fills in what depends on something else; `has_threads` says whether the
    /// environment has a driver.
    pub(crate) fn resolve(&self, has_threads: bool) -> Result<Settings> {
        let range = |name: &str, value: u64, least: u64, most: u64| {
            if (least..=most).contains(&value) {
                return Ok(());
            }
            Err(Error::invalid(
                "open",
                format!("option {name} is {value}, not {least} to {most}"),
            ))
        };
        let hash_bits = self.hash_bits.unwrap_or(HASH_BITS as u8);
        range("hash_bits", hash_bits.into(), 8, HASH_BITS.into())?;
        range(
            "chunk_bytes",
            self.chunk_bytes.into(),
            CHUNK_BYTES_MIN.into(),
            1 << 26,
        )?;
        range("block_records", self.block_records.into(), 2, 4096)?;
        range("queue_slots", self.queue_slots.into(), 1, 64)?;
        range(
            "pinned_generations_max",
            self.pinned_generations_max.into(),
            0,
            64,
        )?;
        range(
            "output_buffer_bytes",
            self.output_buffer_bytes.into(),
            256,
            1 << 26,
        )?;
        range(
            "cursor_buffer_bytes",
            self.cursor_buffer_bytes.into(),
            256,
            1 << 26,
        )?;
        range("key_fence_bytes", self.key_fence_bytes.into(), 64, 1 << 20)?;
        range(
            "manifest_roll_bytes",
            self.manifest_roll_bytes,
            256,
            MANIFEST_ROLL_BYTES_MAX,
        )?;
        if let Fold::Runs(runs) = self.fold {
            range("fold runs", runs.into(), 2, 64)?;
        }
        range("filter_sample_bits", self.filter_sample_bits.into(), 0, 6)?;
        range("fold_bytes", self.fold_bytes, 768, 1 << 32)?;
        range(
            "run_part_records",
            self.run_part_records.into(),
            16,
            1 << 30,
        )?;
        for (name, size) in [
            ("seal_bytes", self.seal_bytes),
            ("batch_bytes_max", self.batch_bytes_max),
            ("window_bytes", self.window_bytes),
        ] {
            range(name, size.unwrap_or(0), 0, SIZE_BYTES_MAX)?;
        }
        if self.retry_delay.is_zero() {
            // A job that fails would be runnable at once: who runs jobs until there is none never ends.
            return Err(Error::invalid("open", "option retry_delay is zero"));
        }
        if let Some(Background::Threads(threads)) = self.background {
            range("background threads", threads as u64, 1, 64)?;
        }
        let write_region_bytes = self.write_region_bytes.unwrap_or(self.memory_bytes / 2);
        range(
            "write_region_bytes",
            write_region_bytes,
            4096,
            WRITE_REGION_BYTES_MAX,
        )?;
        let seal_records = self
            .seal_records
            .unwrap_or((write_region_bytes >> 10).clamp(64, 1 << 24) as u32);
        range("seal_records", seal_records.into(), 1, 1 << 24)?;
        for (name, bytes) in [
            ("seal_bytes", self.seal_bytes),
            ("batch_bytes_max", self.batch_bytes_max),
            ("scan_bytes", self.scan_bytes),
        ] {
            range(name, bytes.unwrap_or(0), 0, WRITE_REGION_BYTES_MAX)?;
        }
        let batch_records_max = self.batch_records_max.unwrap_or(seal_records);
        range("batch_records_max", batch_records_max.into(), 1, 1 << 24)?;
        Ok(Settings {
            source: self.clone(),
            create: self.create && !self.read_only,
            read_only: self.read_only,
            write_region_bytes,
            filter_budget_bytes: self.filter_budget_bytes.unwrap_or(self.memory_bytes / 4),
            filter_policy: self.filter_policy,
            filter_sample_bits: self.filter_sample_bits,
            scan_bytes: self.scan_bytes.unwrap_or(self.memory_bytes / 8),
            window_bytes: self.window_bytes.unwrap_or(self.memory_bytes / 8),
            chunk_bytes: self.chunk_bytes.next_multiple_of(8),
            block_records: self.block_records,
            seal_records,
            seal_bytes: self.seal_bytes,
            batch_records_max,
            batch_bytes_max: self.batch_bytes_max,
            pinned_generations_max: self.pinned_generations_max,
            queue_slots: self.queue_slots,
            descriptors_max: self.descriptors_max,
            read_mode: self.read_mode,
            mappings_max: self.mappings_max,
            cold_reads_ahead: self.cold_reads_ahead,
            hash_bits: self.hash_bits,
            family_seed: self.family_seed,
            background: match self.background {
                Some(background) => background,
                None if has_threads => Background::Threads(1),
                None => Background::Manual,
            },
            write_deadline: self.write_deadline,
            output_buffer_bytes: self.output_buffer_bytes,
            cursor_buffer_bytes: self.cursor_buffer_bytes,
            key_fence_bytes: self.key_fence_bytes,
            manifest_roll_bytes: self.manifest_roll_bytes,
            retry_delay: self.retry_delay,
            fold_runs: match self.fold {
                Fold::Runs(runs) => Some(runs),
                Fold::Off => None,
            },
            fold_bytes: self.fold_bytes,
            run_part_records: self.run_part_records,
            key_bytes_max: KEY_BYTES_MAX.min(self.chunk_bytes as usize - 16),
        })
    }
}

/// Validated options.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// What they were made from.
    source: Options,
    pub create: bool,
    pub read_only: bool,
    pub write_region_bytes: u64,
    pub filter_budget_bytes: u64,
    pub filter_policy: FilterPolicy,
    pub filter_sample_bits: u8,
    pub scan_bytes: u64,
    pub window_bytes: u64,
    pub chunk_bytes: u32,
    pub block_records: u32,
    pub seal_records: u32,
    pub seal_bytes: Option<u64>,
    pub batch_records_max: u32,
    pub batch_bytes_max: Option<u64>,
    pub pinned_generations_max: u32,
    pub queue_slots: u32,
    pub descriptors_max: u32,
    pub read_mode: ReadMode,
    pub mappings_max: u32,
    pub cold_reads_ahead: bool,
    pub hash_bits: Option<u8>,
    pub family_seed: Option<[u8; 16]>,
    pub background: Background,
    pub write_deadline: Duration,
    pub output_buffer_bytes: u32,
    pub cursor_buffer_bytes: u32,
    pub key_fence_bytes: u32,
    pub manifest_roll_bytes: u64,
    pub retry_delay: Duration,
    /// Runs that make a fold; none: no folds.
    pub fold_runs: Option<u8>,
    pub fold_bytes: u64,
    pub run_part_records: u32,
    pub key_bytes_max: usize,
}

impl Settings {
    /// The same options with another write region.
    pub fn with_region(&self, write_region_bytes: u64) -> Result<Self> {
        self.source
            .clone()
            .write_region_bytes(write_region_bytes)
            .resolve(true)
    }

    /// The most records of a generation: one larger batch fills one alone.
    pub fn records_max(&self) -> u32 {
        self.seal_records.max(self.batch_records_max)
    }
}

/// How a keyspace is created; an existing one must be of the same kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyspaceOptions {
    pub(crate) kind: crate::types::KeyspaceKind,
}

impl KeyspaceOptions {
    /// A keyspace whose keys keep their first value.
    pub const fn write_once() -> Self {
        Self {
            kind: crate::types::KeyspaceKind::WriteOnce,
        }
    }

    /// A keyspace in which the last write wins.
    pub const fn mutable() -> Self {
        Self {
            kind: crate::types::KeyspaceKind::Mutable,
        }
    }
}

impl Default for KeyspaceOptions {
    fn default() -> Self {
        Self::mutable()
    }
}

//! Structures of io_uring as the kernel lays them out (include/uapi/linux/io_uring.h), and requests made from
//! them.

use crate::raw::ioctl_number;

/// `struct io_sqring_offsets`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct SubmissionOffsets {
    pub(super) head: u32,
    pub(super) tail: u32,
    pub(super) ring_mask: u32,
    pub(super) ring_entries: u32,
    pub(super) flags: u32,
    pub(super) dropped: u32,
    pub(super) array: u32,
    pub(super) reserved: u32,
    pub(super) user_address: u64,
}

/// `struct io_cqring_offsets`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct CompletionOffsets {
    pub(super) head: u32,
    pub(super) tail: u32,
    pub(super) ring_mask: u32,
    pub(super) ring_entries: u32,
    pub(super) overflow: u32,
    pub(super) cqes: u32,
    pub(super) flags: u32,
    pub(super) reserved: u32,
    pub(super) user_address: u64,
}

/// `struct io_uring_params`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct Params {
    pub(super) sq_entries: u32,
    pub(super) cq_entries: u32,
    pub(super) flags: u32,
    pub(super) sq_thread_cpu: u32,
    pub(super) sq_thread_idle: u32,
    pub(super) features: u32,
    pub(super) wq_fd: u32,
    pub(super) reserved: [u32; 3],
    pub(super) sq_off: SubmissionOffsets,
    pub(super) cq_off: CompletionOffsets,
}

/// `struct io_uring_cqe`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct CqeRaw {
    pub(super) user_data: u64,
    pub(super) result: i32,
    pub(super) flags: u32,
}

/// `struct io_uring_getevents_arg`.
#[repr(C)]
#[derive(Default)]
pub(super) struct GetEventsArgument {
    pub(super) sigmask: u64,
    pub(super) sigmask_size: u32,
    pub(super) min_wait_usec: u32,
    pub(super) timeout: u64,
}

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Opcode {
    /// `preadv`.
    Readv = 1,
    /// `pwritev`.
    Writev = 2,
    /// `fallocate`.
    Fallocate = 17,
    /// `pread` (5.6).
    Read = 22,
    /// `pwrite` (5.6).
    Write = 23,
    /// A command of the file's own kind (5.19).
    Command = 46,
}

/// A request (`struct io_uring_sqe`).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Sqe {
    opcode: u8,
    flags: u8,
    priority: u16,
    fd: i32,
    offset: u64,
    address: u64,
    len: u32,
    operation_flags: u32,
    user_data: u64,
    buffer_index: u16,
    personality: u16,
    file_index: u32,
    address3: u64,
    reserved: u64,
}

const _: () = {
    assert!(size_of::<Params>() == 120);
    assert!(size_of::<SubmissionOffsets>() == 40);
    assert!(size_of::<CompletionOffsets>() == 40);
    assert!(size_of::<CqeRaw>() == 16);
    assert!(size_of::<Sqe>() == 64);
    assert!(size_of::<GetEventsArgument>() == 24);
};

/// `_IO(0x12, 0)`.
const BLOCK_URING_CMD_DISCARD: u32 = ioctl_number(0, 0x12, 0, 0);

impl Sqe {
    fn new(opcode: Opcode, fd: i32, address: u64, len: u32, offset: u64, user_data: u64) -> Sqe {
        Sqe {
            opcode: opcode as u8,
            flags: 0,
            priority: 0,
            fd,
            offset,
            address,
            len,
            operation_flags: 0,
            user_data,
            buffer_index: 0,
            personality: 0,
            file_index: 0,
            address3: 0,
            reserved: 0,
        }
    }

    /// What the completion will carry.
    #[must_use]
    pub fn user_data(&self) -> u64 {
        self.user_data
    }

    /// `pread(fd, address, len, offset)`.
    #[must_use]
    pub fn read(fd: i32, address: usize, len: u32, offset: u64, user_data: u64) -> Sqe {
        Sqe::new(Opcode::Read, fd, address as u64, len, offset, user_data)
    }

    /// `pwrite(fd, address, len, offset)`.
    #[must_use]
    pub fn write(fd: i32, address: usize, len: u32, offset: u64, user_data: u64) -> Sqe {
        Sqe::new(Opcode::Write, fd, address as u64, len, offset, user_data)
    }

    /// `preadv(fd, vectors, count, offset)`; the vectors themselves must stay valid until it is submitted,
    /// the memory they name until it is complete.
    #[must_use]
    pub fn readv(fd: i32, vectors: *const crate::mem::IoVec, count: u32, offset: u64, user_data: u64) -> Sqe {
        Sqe::new(Opcode::Readv, fd, vectors as u64, count, offset, user_data)
    }

    /// `pwritev(fd, vectors, count, offset)`; lifetimes as for [`Sqe::readv`].
    #[must_use]
    pub fn writev(
        fd: i32,
        vectors: *const crate::mem::IoVec,
        count: u32,
        offset: u64,
        user_data: u64,
    ) -> Sqe {
        Sqe::new(Opcode::Writev, fd, vectors as u64, count, offset, user_data)
    }

    /// `fallocate(fd, mode, offset, len)`; always done by a kernel worker thread.
    #[must_use]
    pub fn fallocate(fd: i32, mode: u32, offset: u64, len: u64, user_data: u64) -> Sqe {
        // The kernel takes the length in the address field and the mode in the length field.
        Sqe::new(Opcode::Fallocate, fd, len, mode, offset, user_data)
    }

    /// Tells a block device that nobody needs these bytes any more (6.12; EOPNOTSUPP or EINVAL
    /// before, and where the device does not want to know).
    #[must_use]
    pub fn discard_blocks(fd: i32, offset: u64, len: u64, user_data: u64) -> Sqe {
        // The command's number stands where other operations have the offset.
        let command = u64::from(BLOCK_URING_CMD_DISCARD);
        let request = Sqe::new(Opcode::Command, fd, offset, 0, command, user_data);
        Sqe { address3: len, ..request }
    }
}

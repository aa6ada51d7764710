/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wire: the protocol between the host (cove-api) and the agent (PID 1 of a sandbox), over one byte stream that the
 * sandbox's tier opens (tier/tier.h): a socket whose other end was passed in, a connection, a serial port of a virtual
 * machine.
 *
 * Theory of operation
 *
 *  1. Either side sends frames: a 12-byte header (little-endian: u32 size of the payload, u32 stream, u8 type, u8
 *     flags, u16 zero), then the payload, at most WIRE_PAYLOAD_MAX bytes. Anything else is a violation: the receiver
 *     drops the session.
 *  2. The agent's first frame is HELLO on stream 0. The host's may be; it doesn't wait for the agent's.
 *  3. A stream begins with the host's OPEN (a fresh, non-zero, never reused id; at most WIRE_STREAMS_MAX at a time) and
 *     ends with the agent's END; exactly one END for each OPEN, whatever happens. After END neither side names the
 *     stream again (frames of the host that crossed the END are ignored by the agent).
 *  4. Between them the agent may send at most one REPLY (the verb's head, see below), and DATA only behind it.
 *  5. DATA spends credit: either side starts with WIRE_WINDOW bytes towards the other on every stream, CREDIT gives
 *     back what was consumed. Sending without credit is a violation. Only payload bytes of DATA count. The sum of all
 *     grants stays below 2^63.
 *  6. EOF says that its sender will send no more DATA on this stream. CLOSE says that the host has lost interest: the
 *     agent ends the stream with END soon, and what it sends until then is ignored. A process is never touched by
 *     CLOSE.
 *  7. A new session replaces the one before: all streams of that one are gone, processes and their kept output are not.
 *  8. The host trusts nothing of what the agent says; the agent trusts the host.
 *
 * Process output. The agent keeps the last WIRE_WINDOW bytes of output of every process, of all its channels together,
 * and counts them: an offset is the number of output bytes of the process before it. Any number of streams (the EXEC,
 * later ATTACHes) follow the output, each at its own offset and with its own credit. While at least one follows, the
 * process is read only as far as the slowest one has consumed plus WIRE_WINDOW: a slow reader blocks the process and
 * nothing is lost. While none follows, the oldest bytes make room. "Seen" is the highest offset that some stream
 * acknowledged with WIRE_CREDIT_DELIVERED (a client has it); a CREDIT that crossed the END counts too.
 *
 * Values in payloads: u8, u16, u32, u64 little-endian; str = u32 length + bytes; list = u32 count + items; pair = str
 * str.
 */
#pragma once

#include "base/def.h"

enum {
    WIRE_VERSION = 2,
    WIRE_HEADER_SIZE = 12,
    WIRE_PAYLOAD_MAX = 256 * 1024,
    WIRE_WINDOW = 256 * 1024,
    WIRE_STREAMS_MAX = 4096,
    WIRE_ATTRIBUTES_MAX = 64,
};

enum wire_type {
    /*
     * agent: u32 version. host: str attributes ("": WIRE_ATTRIBUTES), list<pair> env: the prefix of the extended
     * attributes that are a file's metadata, and variables of every process that is started from here on,
     * COVE_SANDBOX_ID and COVE_TEMPLATE_ID among them.
     */
    WIRE_HELLO = 1,
    WIRE_OPEN = 2,   /* host: u8 verb, then its request */
    WIRE_REPLY = 3,  /* agent: the verb's head */
    WIRE_DATA = 4,   /* both; flags: enum wire_channel for process output, else 0 */
    WIRE_CREDIT = 5, /* both: u32 bytes; flags: WIRE_CREDIT_DELIVERED */
    WIRE_EOF = 6,    /* both: empty */
    WIRE_END = 7,    /* agent: u16 err_pack() (0: success), str message, then on success the verb's tail */
    WIRE_CLOSE = 8,  /* host: empty */
    /*
     * Between what starts an agent and the agent (wire/wake.h): the monitor of a virtual machine (tier/vm), or coved at the front of a session. cove-api never sees it. On stream 0.
     * host:    u8 enum wire_wake, u64 nonce, u64 now (us since 1970), str entropy, str host name ("": as it is), str sandbox, str template, u32 processes (0: any)
     * agent:   u8, u64: the first two again, but for WAKE_RESTORED and WAKE_ON. Of a WAKE_SESSION the session of before is over with it, and its HELLO is the next frame.
     */
    WIRE_WAKE = 9,
};

enum wire_wake {
    WIRE_WAKE_SESSION = 1, /* a session begins in place of the one before, perhaps in a copy of the machine that was */
    WIRE_WAKE_SETTLE =
        2, /* what was written goes to the disk, nobody runs but the agent, which is silent behind its answer */
    WIRE_WAKE_RESTORED = 3, /* it goes on from a checkpoint, and so do programs, which are told (agent/wake.h) */
    WIRE_WAKE_ON = 4,       /* and all go on; no answer. A WAKE_SESSION does the same */
    WIRE_WAKE_REHEARSE =
        5, /* as a WAKE_SETTLE, but first what a session begins with is done once, and a program runs */
};

enum { WIRE_CREDIT_DELIVERED = 1 }; /* these bytes reached a client, as opposed to the log only */

enum wire_channel { WIRE_STDOUT = 1, WIRE_STDERR = 2, WIRE_PTY = 3 };

/*
 * Verbs. "user" is a name of the sandbox's /etc/passwd, resolved by the agent ("" is WIRE_DEFAULT_USER; unknown:
 * ERR_UNAUTHENTICATED "invalid username: 'x'"). A path is resolved like a shell of that user would: "" and relative
 * ones from the home directory, "~" and "~/x" too; at most 4,095 bytes, no NUL. process = u8 by (0: pid, 1: tag), u32
 * pid, str tag; unknown: ERR_NOT_FOUND "process with pid N not found" / "process with tag T not found".
 */
enum wire_verb {
    /*
     * Starts a process as `user` in a session of its own. Its environment is PATH, LANG, COVE_SANDBOX ("true"),
     * COVE_SANDBOX_ID, COVE_TEMPLATE_ID, what HELLO says, HOME, USER, LOGNAME, SHELL of the user, then `env` on top.
     * request: str cmd, list<str> args (without cmd), list<pair> env, str user, str cwd, str tag, u8 flags, u16 cols, u16 rows
     * head:    u32 pid, u64 offset (0)
     * DATA from the agent: output. CREDIT from the host.
     * tail:    u8 how (enum wire_exit), u32 exit code or signal, u64 output bytes in all
     * END comes when the process has ended and all of its output was sent (what background children that still hold its pipes write
     * in the first 200 ms after the exit is included; what they write later is read and dropped, so that it does not kill them).
     */
    WIRE_EXEC = 1,
    /* request: process, u8 from (enum wire_from), u64 offset; head, DATA, tail: as EXEC. An ended process can be
     * attached for 30 s. */
    WIRE_ATTACH = 2,
    /*
     * DATA: any number of records, in order of start (a record may be split over frames):
     *   u32 pid, u8 flags, u64 started (us since 1970), str tag, str cmd, list<str> args, list<pair> env (as asked
     *   for), str cwd, str user, u64 output bytes, u64 seen, u8 how, u32 code (how and code only meaningful with
     *   WIRE_PROC_ENDED)
     * request: empty. head: empty. tail: empty.
     */
    WIRE_PROCESSES = 3,
    /* Writes bytes to stdin or the PTY; ends when all of them were taken. request: process, u8 channel (0: stdin,
     * WIRE_PTY), str bytes (<= 64 KiB) */
    WIRE_INPUT = 4,
    WIRE_CLOSE_STDIN = 5, /* request: process */
    /* request: process, u32 signal. To the whole process group. SIGKILL is answered once the process was reaped. */
    WIRE_SIGNAL = 6,
    WIRE_RESIZE = 7, /* request: process, u16 cols, u16 rows */

    /* tail: entry. follow: the entry describes the target of a link (see struct wire_entry). request: str user, str
     * path */
    WIRE_STAT = 16,
    /* request: str user, str path. tail: entry. Parents are made and owned by the user. Exists as directory:
     * ERR_ALREADY_EXISTS; as other: ERR_INVALID_ARGUMENT. */
    WIRE_MKDIR = 17,
    /* request: str user, str source, str destination. tail: entry. */
    WIRE_MOVE = 18,
    /* request: str user, str path, u32 depth (>= 1). head: empty. DATA: entries, pre-order, siblings in byte order,
     * links not followed; each frame holds whole entries. */
    WIRE_LIST = 19,
    /* request: str user, str path. Recursive; missing is success; "/" is refused. */
    WIRE_REMOVE = 20,
    /*
     * request: str user, str path, u64 offset, u64 length (UINT64_MAX: to the end). Regular files only.
     * head: entry. DATA: the bytes. A file whose size is 0 by stat (procfs) is read to its end all the same.
     */
    WIRE_READ = 21,
    /*
     * request: str user, str path, list<pair> metadata. DATA from the host, then EOF. head: empty, once the file is
     * open (wait for it before DATA is sent). tail: entry. Parents made (0755) and owned by the user, file 0644 of the
     * user, an existing one truncated, its mode kept, its owner set to the user. The file's metadata (extended
     * attributes; see HELLO) is replaced by `metadata` (keys without the prefix). Directory: ERR_INVALID_ARGUMENT; no
     * space: ERR_RESOURCE_EXHAUSTED with "no space".
     */
    WIRE_WRITE = 22,
    /*
     * request: str user, str path, u8 flags (enum wire_watch_flag). head: empty, once the watch is set. DATA: one event
     * a frame: u8 kind (enum wire_watch_kind), str name (relative to path), u8 has_entry, entry when it has. Ends by
     * CLOSE only, or with ERR_RESOURCE_EXHAUSTED when the host gives no credit for 4,096 queued events, or does not
     * keep up with the kernel's own queue.
     */
    WIRE_WATCH = 23,
    /*
     * Makes the programs inside trust a certificate authority: writes `pem` into `file`, appends it to the `bundle` of
     * PEM that most programs read, unless it is in there, and to Java's trust store, which is made of the bundle where
     * there is none. Paths are absolute; what is made is root's.
     * request: str file, str bundle, str java, str pem. tail: empty.
     */
    WIRE_TRUST = 24,
    /*
     * From here on, for this session and all to come, the directory is the root of every path: a path, and a symbolic
     * link wherever it lies, that leads out of it leads back to it. Users are none but root, and nothing in there is
     * executed by accident: what programs need is outside.
     * request: str path (absolute). tail: empty.
     */
    WIRE_CONFINE = 25,
    /*
     * Makes a directory, or changes what is there. Owner and mode are set where their flags say so; a link is not
     * followed, and has no mode.
     * request: str user, str path, u8 flags (enum wire_change), u32 uid, u32 gid, u32 mode. tail: entry.
     */
    WIRE_CHANGE = 26,
    /*
     * A directory and all below it as a tar stream, by the sandbox's own tar, with the user's rights.
     * request: str user, str path. head: entry. DATA: the archive. tail: empty. No tar: ERR_FAILED_PRECONDITION; what
     * it complains about: ERR_UNKNOWN.
     */
    WIRE_PACK = 27,
    /*
     * The other way: a tar stream is taken apart below `path`, which is made where it is missing. DATA from the host,
     * then EOF. What comes behind the archive's end is dropped.
     * request: str user, str path. head: empty (wait for it before DATA is sent). tail: entry of the directory.
     * Failures as of PACK.
     */
    WIRE_UNPACK = 28,
    /* As PACK, of any file; the names in the archive begin with the last part of the path. */
    WIRE_PACK_NAMED = 29,

    /*
     * Connects to 127.0.0.1:port (then ::1) inside. request: u16 port. head: empty. DATA and EOF both ways. Refused:
     * ERR_UNAVAILABLE. With u8 WIRE_DIAL_AWAIT behind the port it is tried until somebody listens, and closed: END says
     * so, without REPLY and DATA.
     */
    WIRE_DIAL = 32,
    /* request: empty. tail: u64 disk total, u64 disk used bytes of "/", u32 processes. */
    WIRE_USAGE = 33,
    /* request: empty. tail: empty. */
    WIRE_PING = 34,
    /*
     * From here on the agent itself answers GET and HEAD on 127.0.0.1:port inside, over HTTP: the body of the path that
     * is asked for, 204 when it is empty. In one that says so, $0 to $9 are figures: seconds since 1970, processors,
     * percent of them used since these were asked for last, bytes of memory, used of these, of the page cache, bytes of
     * disk, used of these, MiB of memory, used of these. The port can't be dialled any more. A table replaces the one
     * before.
     * request: u16 port, list<(str path, str content type, str body, u8 has figures)>. tail: empty. The port is taken:
     * ERR_UNAVAILABLE.
     */
    WIRE_ANSWERS = 35,
};

#define WIRE_DEFAULT_USER "user"
#define WIRE_ATTRIBUTES "user.cove."

enum { WIRE_DIAL_AWAIT = 1 };

enum wire_exec_flag {
    WIRE_EXEC_PTY = 1,   /* controlling terminal, cols x rows */
    WIRE_EXEC_STDIN = 2, /* stdin is a pipe; else /dev/null */
    WIRE_EXEC_TAG = 4,   /* tag was given */
};

enum wire_change {
    /* Makes the directory. ERR_ALREADY_EXISTS: something is there; ERR_NOT_FOUND: there is no directory to make it
     * in. */
    WIRE_CHANGE_MAKE = 1,
    /* With MAKE: also those above it; a directory that is there is fine. ERR_INVALID_ARGUMENT: something else is
     * there. */
    WIRE_CHANGE_PARENTS = 2,
    WIRE_CHANGE_UID = 4,
    WIRE_CHANGE_GID = 8,
    WIRE_CHANGE_MODE = 16,
};

enum wire_exit { WIRE_EXITED = 0, WIRE_SIGNALED = 1 };
enum wire_from { WIRE_FROM_NOW = 0, WIRE_FROM_UNSEEN = 1, WIRE_FROM_OFFSET = 2 }; /* clamped to what is still kept */
enum wire_proc_flag { WIRE_PROC_PTY = 1, WIRE_PROC_STDIN = 2, WIRE_PROC_TAG = 4, WIRE_PROC_ENDED = 8 };

enum wire_watch_flag { WIRE_WATCH_RECURSIVE = 1, WIRE_WATCH_ENTRY = 2, WIRE_WATCH_NETWORK_FS = 4 };
enum wire_watch_kind {
    WIRE_WATCH_CREATE = 1,
    WIRE_WATCH_WRITE = 2,
    WIRE_WATCH_REMOVE = 3,
    WIRE_WATCH_RENAME = 4,
    WIRE_WATCH_CHMOD = 5
};

/*
 * entry = str name, str path (absolute), u8 type (enum wire_file_type, of the target for links), u32 mode (st_mode of
 * the target), u32 link_mode (st_mode of the entry itself, lstat), u64 size (lstat), u32 uid, u32 gid, str owner, str
 * group, u64 mtime (ns since 1970; what does not fit is the nearest that does), u8 is_link, str target (resolved
 * absolute; of a broken link its own path), list<pair> metadata (keys without the prefix)
 */
enum wire_file_type { WIRE_FILE_UNKNOWN = 0, WIRE_FILE_REGULAR = 1, WIRE_FILE_DIRECTORY = 2 };

/* SPDX-License-Identifier: Apache-2.0 */
#include "api/e2b/envd/watch_event.h"
#include "api/e2b/envd/envd_entry.h"
#include "api/kit/json_write.h"

int watch_request_read(const json_t *message, struct str *ret_path, uint8_t *ret_flags, struct err *err)
{
    bool recursive = false, entries = false, network = false;
    *ret_path = STR("");
    if (json_get_str(message, "path", ret_path, err) < 0 || json_get_bool(message, "recursive", &recursive, err) < 0 ||
        json_get_bool(message, "includeEntry", &entries, err) < 0 ||
        json_get_bool(message, "allowNetworkMounts", &network, err) < 0)
        return err_prefix(err, "unmarshal message");
    *ret_flags = (uint8_t)((recursive ? WIRE_WATCH_RECURSIVE : 0) | (entries ? WIRE_WATCH_ENTRY : 0) |
                           (network ? WIRE_WATCH_NETWORK_FS : 0));
    return 0;
}

void watch_event_append(struct buf *b, enum wire_watch_kind kind, struct str name, const struct file_entry *entry)
{
    static const char *const types[] = {
        [WIRE_WATCH_CREATE] = "EVENT_TYPE_CREATE", [WIRE_WATCH_WRITE] = "EVENT_TYPE_WRITE",
        [WIRE_WATCH_REMOVE] = "EVENT_TYPE_REMOVE", [WIRE_WATCH_RENAME] = "EVENT_TYPE_RENAME",
        [WIRE_WATCH_CHMOD] = "EVENT_TYPE_CHMOD",
    };
    json_open(b, "name", name);
    if ((size_t)kind < ARRAY_SIZE(types) && types[kind])
        buf_printf(b, ",\"type\":\"%s\"", types[kind]);
    if (entry) {
        buf_append_cstr(b, ",\"entry\":");
        entry_append(b, entry, false);
    }
    buf_append_char(b, '}');
}

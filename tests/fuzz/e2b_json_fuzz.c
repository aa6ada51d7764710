/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies of requests: the first byte chooses which, the rest is the JSON text. */
#include "api/e2b/control/create_spec.h"
#include "api/e2b/envd/envd.h"
#include "api/e2b/envd/process_spec.h"
#include "api/e2b/envd/rpc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void decode(uint8_t which, const json_t *json)
{
    AUTO_ARENA struct arena arena = ARENA_INIT;
    AUTO_BUF struct buf bytes = BUF_INIT(65536);
    struct sandbox_spec create;
    struct network_body network = {0};
    struct exec_spec start;
    struct exec_select select;
    struct str text;
    uint8_t flags;
    uint16_t cols, rows;
    int signal;
    bool pty;
    struct err err;

    switch (which % 6) {
    case 0:
        if (create_spec_read(json, which & 64 ? CREATE_V1 : CREATE_V2, 86400000, &arena, &create, &network, &err) == 0)
            assert(create.timeout_ms >= 1000 && create.timeout_ms <= 86400000 && create.template_ref.n);
        network_body_fini(&network);
        break;
    case 1:
        if (process_start_read(json, &arena, &start, &err) == 0)
            assert(start.cmd.p && start.cwd.p);
        break;
    case 2:
        if (process_select_read(json, &select, &err) == 0)
            assert(!select.by_tag || select.tag.p);
        break;
    case 3:
        if (process_input_read(json, &pty, &text, &err) == 0)
            (void)!rpc_append_bytes(&bytes, text);
        break;
    case 4:
        if (process_signal_read(json, &signal, &err) == 0)
            assert(signal == 9 || signal == 15);
        (void)!process_size_read(json, &cols, &rows, &err);
        break;
    default:
        if (watch_request_read(json, &text, &flags, &err) == 0)
            assert(flags < 8 && text.p);
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO_JSON json_t *json = NULL;
    struct err err;

    if (size && json_read_object(str_n(data + 1, size - 1), data[0] & 128, &json, &err) == 0)
        decode(data[0], json);
    return 0;
}

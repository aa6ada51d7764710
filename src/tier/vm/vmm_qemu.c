/* SPDX-License-Identifier: Apache-2.0 */
#include "kernel/netns.h"
#include "tier/vm/qmp.h"

/* The next argument. */
static PRINTF_LIKE(2, 3) void vmm_add(struct vmm_command *c, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(c->text + c->used, sizeof(c->text) - c->used, fmt, ap);
    va_end(ap);
    assert(n >= 0 && c->used + (size_t)n < sizeof(c->text) && c->n + 1 < VMM_ARGUMENTS_MAX);
    c->argv[c->n++] = c->text + c->used;
    c->argv[c->n] = NULL;
    c->used += (size_t)n + 1;
}

static void qemu_add_disk(struct vmm_command *c, const char *file, const char *serial, bool read_only)
{
    vmm_add(c, "-drive");
    vmm_add(c, "if=none,id=%s,file=%s,format=raw,aio=threads%s", serial, file, read_only ? ",readonly=on" : "");
    vmm_add(c, "-device");
    vmm_add(c, "virtio-blk-device,drive=%s,serial=%s,discard=off,write-zeroes=off", serial, serial);
}

/*
 * No clock of a PC's: a kernel that can't calibrate its time stamps by one, which emulation on a busy machine keeps it
 * from, hangs; it is told of the frequency. Machines that restart or lose their agent end.
 */
static void qemu_command(const struct vmm_spec *s, struct vmm_command *c)
{
    static const char *const fixed[] = {"qemu",
                                        "-nodefaults",
                                        "-no-user-config",
                                        "-no-reboot",
                                        "-display",
                                        "none",
                                        "-sandbox",
                                        "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
                                        "-kernel",
                                        VMM_KERNEL,
                                        "-device",
                                        "virtio-serial-device"};
    c->n = c->used = 0;
    for (size_t i = 0; i < ARRAY_SIZE(fixed); i++)
        vmm_add(c, "%s", fixed[i]);
    vmm_add(c, "-accel");
    vmm_add(c, "%s", s->emulated ? "tcg,thread=multi,tb-size=64" : "kvm");
    vmm_add(c, "-cpu");
    vmm_add(c, "%s", s->emulated ? "max" : "host");
    vmm_add(c, "-m");
    vmm_add(c, "%llu", (unsigned long long)(s->memory_bytes >> 20));
    vmm_add(c, "-smp");
    vmm_add(c, "%u", s->cpus);
    vmm_add(c, "-append");
    if (s->emulated && s->tsc_khz)
        vmm_add(c, "console=ttyS0 quiet loglevel=3 panic=-1 reboot=t tsc=reliable tsc_early_khz=%u norandmaps",
                s->tsc_khz);
    else
        vmm_add(c, "console=ttyS0 quiet loglevel=3 panic=-1 reboot=t");
    vmm_add(c, "-chardev");
    vmm_add(c, "socket,id=console,fd=%d", s->console_fd);
    vmm_add(c, "-serial");
    vmm_add(c, "chardev:console");
    vmm_add(c, "-M");
    vmm_add(c, "microvm,mem-merge=off%s", s->wire_fd >= 0 ? ",memory-backend=memory,suppress-vmdesc=on" : "");
    if (s->wire_fd >= 0) {
        vmm_add(c, "-object");
        vmm_add(c, "memory-backend-file,id=memory,share=off,mem-path=" VMM_MEMORY ",size=%llu",
                (unsigned long long)s->memory_bytes);
        vmm_add(c, "-global");
        vmm_add(c, "migration.send-configuration=off");
        vmm_add(c, "-global");
        vmm_add(c, "migration.announce-rounds=0"); /* behind a gate nobody would hear that it has moved */
        vmm_add(c, "-add-fd");
        vmm_add(c, "fd=%d,set=1", s->devices_fd);
        vmm_add(c, "-chardev");
        vmm_add(c, "socket,id=monitor,fd=%d", s->monitor_fd);
        vmm_add(c, "-mon");
        vmm_add(c, "chardev=monitor,mode=control");
        vmm_add(c, "-initrd");
        vmm_add(c, "%s", VMM_INITRAMFS);
        vmm_add(c, "-chardev");
        vmm_add(c, "socket,id=wire,fd=%d", s->wire_fd);
        vmm_add(c, "-device");
        vmm_add(c, "virtserialport,chardev=wire,name=cove");
        vmm_add(c, "-device");
        vmm_add(c, "virtio-balloon-device,free-page-reporting=on,deflate-on-oom=on");
        qemu_add_disk(c, VMM_OWN, "own", false);
    }
    if (s->incoming_fd >= 0) {
        vmm_add(c, "-S");
        vmm_add(c, "-incoming");
        vmm_add(c, "fd:%d", s->incoming_fd);
    }
    if (s->net_fd >= 0) {
        vmm_add(c, "-netdev");
        vmm_add(c, "tap,id=net,fd=%d", s->net_fd);
        vmm_add(c, "-device");
        vmm_add(c, "virtio-net-device,netdev=net,mac=%s", NETNS_GATE_MAC);
    }
    for (uint32_t i = 0; i < s->n_layers; i++) {
        char file[8], serial[8];
        (void)snprintf(file, sizeof(file), "/l%02u", i % 100);
        (void)snprintf(serial, sizeof(serial), "l%02u", i % 100);
        qemu_add_disk(c, file, serial, true);
    }
}

const struct vmm vmm_qemu = {
    .name = "QEMU",
    .program = "/usr/bin/qemu-system-x86_64",
    .package = "qemu-system-x86",
    .command = qemu_command,
    .ask = qmp_ask,
};

/* SPDX-License-Identifier: Apache-2.0 */
/* A stack as an OpenSSH config, as `gpuprov ssh STACK --config` prints it. Pure. */
#include "base/gp_base.h"

#include "export_forms.h"

static int write_ssh_config(const struct export_stack *s, struct str *out, struct gp_error *err) {
    (void)err;
    str_add(out, s->config);
    return 0;
}

const struct export_form export_form_ssh_config = {
    .name = "ssh_config",
    .any_node = true,
    .write = write_ssh_config,
};

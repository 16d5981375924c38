/* SPDX-License-Identifier: Apache-2.0 */
/* The start of an instance: how long it may take by its type, and its console. */
#include "base/gp_base.h"

#include "providers/aws/aws_int.h"

#include "base/hash.h"

enum { MINUTE_MS = 60000, CONSOLE_BYTES = 65536 };

/* Types that are known to be slow. */
static const struct {
    const char *part; /* of the type's name; NULL: any */
    int gpus;         /* at least */
    int64_t ms;
} slow[] = {
    /* "metal instances can take over 20 minutes to start or restart": canonical/pycloudlib pull request 192, which
       waits 40 minutes */
    {".metal", 0, (int64_t)40 * MINUTE_MS},
    /* "GPU instance types often take much longer to boot": awslabs/amazon-eks-ami issue 1099. No figure is published;
       twice the limit of one GPU. */
    {NULL, 8, (int64_t)20 * MINUTE_MS},
};

int64_t aws_boot_timeout(const char *instance_type, int gpus) {
    for (size_t i = 0; i < GP_ARRAY_LEN(slow); i++)
        if ((slow[i].part == NULL || strstr(instance_type, slow[i].part) != NULL) && gpus >= slow[i].gpus)
            return slow[i].ms;
    return 0;
}

static int get(struct aws *a, const struct resource *machine, bool latest, struct str *ret, struct gp_error *err) {
    GP_AUTO_STR struct str body = {0}, bytes = {0};
    GP_AUTO_REPLY struct aws_reply reply = {0};
    aws_begin(&body, "GetConsoleOutput");
    aws_param(&body, "InstanceId", machine->id);
    if (latest) aws_param(&body, "Latest", "true");
    int r = aws_ec2(a, machine->region, "GetConsoleOutput", &body, AWS_OPTIONAL, &reply, err);
    if (r != 0) return r;
    /* base64 in lines */
    GP_AUTO_FREE char *text = xstrdup(xml_str(reply.xml, "output", ""));
    size_t n = 0;
    for (const char *p = text; *p != '\0'; p++)
        if (strchr(" \t\r\n", *p) == NULL) text[n++] = *p;
    if (!base64_bytes(text, n, &bytes))
        return gp_fail(err, GP_EPROTO, "aws: the console of %s is not base64", machine->id);
    size_t skip = bytes.len > CONSOLE_BYTES ? bytes.len - CONSOLE_BYTES : 0;
    for (size_t i = skip; i < bytes.len; i++) str_addc(ret, bytes.s[i] != '\0' ? bytes.s[i] : '?');
    return 0;
}

/* Only Nitro types have the latest console; others refuse the parameter. */
int aws_console(struct provider *p, const struct resource *machine, struct str *ret, struct gp_error *err) {
    struct aws *a = aws_of(p);
    struct gp_error why = {0};
    if (get(a, machine, true, ret, &why) == 0) return 0;
    return get(a, machine, false, ret, err);
}

// SPDX-License-Identifier: Apache-2.0
/* A token from the Azure CLI: `az account get-access-token`, run without a shell. One thread at a time. */
#include "base/gp_base.h"

#include "providers/azure/azure_int.h"

#include "base/fs.h"
#include "providers/common/program.h"

/* 'az login' writes it. Without it the program is not started, because it may be anything of that name. */
static bool has_login(void) {
    const char *folder = azure_env("AZURE_CONFIG_DIR");
    GP_AUTO_FREE char *base = fs_expand_home(folder != NULL ? folder : "~/.azure");
    GP_AUTO_FREE char *file = base != NULL ? fs_join(base, "azureProfile.json") : NULL;
    return file != NULL && fs_exists(file);
}

int azure_creds_cli(struct azure *a, struct azure_cred *ret, struct gp_error *err) {
    if (!has_login()) return 0;
    GP_AUTO_STR struct str out = {0};
    GP_AUTO_JSON json_t *j = NULL;
    GP_AUTO_FREE char *resource = xasprintf("%s/", a->audience);
    GP_AUTO_FREE char *wanted =
        xstrdup(azure_env("AZURE_SUBSCRIPTION_ID") != NULL ? azure_env("AZURE_SUBSCRIPTION_ID") : "");
    char az[] = "az", account[] = "account", get[] = "get-access-token", for_what[] = "--resource", as[] = "-o",
         json[] = "json", subscription[] = "--subscription";
    char *argv[] = {az, account, get, for_what, resource, as, json, NULL, NULL, NULL};
    if (wanted[0] != '\0') { /* it may be in another tenant than the CLI's default */
        argv[7] = subscription;
        argv[8] = wanted;
    }
    struct gp_error why = {0};
    int r = program_run(argv, PROGRAM_MS, a->cancel, &out, &why);
    if (r == -GP_ENOTFOUND) return 0;
    if (r != 0) r = gp_fail(err, why.code, "%s%s", why.msg, r == -GP_EAUTH ? ": run 'az login'" : "");
    if (r == 0) r = json_parse(out.s != NULL ? out.s : "", out.len, "its output", &j, err);
    if (out.s != NULL) explicit_bzero(out.s, out.len);
    if (r == 0) r = azure_cred_from_json(a, j, "the Azure CLI", ret, err);
    if (r != 0) {
        gp_wrap(err, "az account get-access-token");
        if (err != NULL && err->code != GP_ECANCELLED) err->code = GP_EAUTH;
        return err != NULL ? -(int)err->code : -GP_EAUTH;
    }
    ret->subscription = xstrdup(json_str(j, "subscription", ""));
    ret->source = xstrdup("the Azure CLI");
    return 0;
}

// SPDX-License-Identifier: Apache-2.0
/* GPU types of Alibaba Cloud ECS. Prices: cloudpilot-ai/priceserver (Apache-2.0) of 2024-10-16, from the China site in
 * CNY, divided by 7.10: rough, and used only where DescribePrice gives none. One or two regions for each type. */
#include "base/gp_base.h"

#include "providers/catalog/catalog.h"

const struct catalog_row catalog_alibaba[] = {
    {"ecs.ebmgn6i.24xlarge", "T4", 4, "cn-heyuan", 9.6831},
    {"ecs.ebmgn6v.24xlarge", "V100", 8, "cn-zhangjiakou", 25.0484},
    {"ecs.ebmgn7e.32xlarge", "A100-80GB", 8, "ap-northeast-1", 41.898},
    {"ecs.ebmgn7ex.32xlarge", "A100-80GB", 8, "cn-shenzhen", 38.1455},
    {"ecs.ebmgn7ix.32xlarge", "A10", 8, "cn-beijing", 11.3728},
    {"ecs.gn5-c28g1.14xlarge", "P100", 2, "ap-southeast-1", 6.1437},
    {"ecs.gn5-c28g1.7xlarge", "P100", 1, "ap-southeast-1", 3.0718},
    {"ecs.gn5-c4g1.2xlarge", "P100", 2, "ap-southeast-1", 3.5451},
    {"ecs.gn5-c4g1.xlarge", "P100", 1, "ap-southeast-1", 1.7718},
    {"ecs.gn5-c8g1.14xlarge", "P100", 8, "ap-northeast-1", 17.2169},
    {"ecs.gn5-c8g1.2xlarge", "P100", 1, "ap-southeast-1", 2.1338},
    {"ecs.gn5-c8g1.4xlarge", "P100", 2, "ap-southeast-1", 4.269},
    {"ecs.gn5-c8g1.8xlarge", "P100", 4, "ap-northeast-1", 8.607},
    {"ecs.gn5i-c16g1.4xlarge", "P4", 1, "cn-hangzhou", 2.2014},
    {"ecs.gn5i-c16g1.8xlarge", "P4", 2, "cn-hangzhou", 4.4014},
    {"ecs.gn5i-c28g1.14xlarge", "P4", 2, "cn-hangzhou", 6.0648},
    {"ecs.gn5i-c2g1.large", "P4", 1, "cn-hangzhou", 1.2225},
    {"ecs.gn5i-c4g1.xlarge", "P4", 1, "cn-hangzhou", 1.3648},
    {"ecs.gn5i-c8g1.2xlarge", "P4", 1, "cn-hangzhou", 1.6437},
    {"ecs.gn6e-c12g1.12xlarge", "V100-32GB", 4, "cn-hangzhou", 11.1208},
    {"ecs.gn6e-c12g1.24xlarge", "V100-32GB", 8, "cn-hangzhou", 22.2417},
    {"ecs.gn6e-c12g1.3xlarge", "V100-32GB", 1, "cn-hangzhou", 2.7801},
    {"ecs.gn6i-c16g1.4xlarge", "T4", 1, "ap-southeast-1", 1.952},
    {"ecs.gn6i-c24g1.12xlarge", "T4", 2, "ap-southeast-1", 4.8952},
    {"ecs.gn6i-c24g1.24xlarge", "T4", 4, "ap-southeast-1", 9.6699},
    {"ecs.gn6i-c24g1.6xlarge", "T4", 1, "ap-southeast-1", 2.4466},
    {"ecs.gn6i-c40g1.10xlarge", "T4", 1, "ap-southeast-1", 3.1266},
    {"ecs.gn6i-c4g1.xlarge", "T4", 1, "ap-southeast-1", 1.253},
    {"ecs.gn6i-c8g1.2xlarge", "T4", 1, "ap-southeast-1", 1.4859},
    {"ecs.gn6v-c10g1.20xlarge", "V100", 8, "cn-beijing", 30.9352},
    {"ecs.gn6v-c8g1.16xlarge", "V100", 8, "cn-beijing", 29.8141},
    {"ecs.gn6v-c8g1.2xlarge", "V100", 1, "cn-beijing", 3.7268},
    {"ecs.gn6v-c8g1.4xlarge", "V100", 2, "cn-beijing", 0},
    {"ecs.gn6v-c8g1.8xlarge", "V100", 4, "cn-beijing", 14.907},
    {"ecs.gn7e-c16g1.16xlarge", "A100-80GB", 4, "ap-northeast-1", 20.949},
    {"ecs.gn7e-c16g1.32xlarge", "A100-80GB", 8, "ap-northeast-1", 41.898},
    {"ecs.gn7e-c16g1.4xlarge", "A100-80GB", 1, "ap-northeast-1", 5.2373},
    {"ecs.gn7e-c16g1.8xlarge", "A100-80GB", 2, "ap-northeast-1", 10.4745},
    {"ecs.gn7i-2x.8xlarge", "A10", 2, "cn-beijing", 2.8432},
    {"ecs.gn7i-4x.16xlarge", "A10", 4, "cn-beijing", 5.6864},
    {"ecs.gn7i-4x.8xlarge", "A10", 4, "cn-beijing", 5.3705},
    {"ecs.gn7i-8x.16xlarge", "A10", 8, "cn-beijing", 10.741},
    {"ecs.gn7i-8x.32xlarge", "A10", 8, "cn-beijing", 11.3728},
    {"ecs.gn7i-c16g1.4xlarge", "A10", 1, "ap-southeast-1", 2.6939},
    {"ecs.gn7i-c32g1.16xlarge", "A10", 2, "ap-southeast-1", 5.9866},
    {"ecs.gn7i-c32g1.32xlarge", "A10", 4, "ap-southeast-1", 11.9732},
    {"ecs.gn7i-c32g1.8xlarge", "A10", 1, "ap-southeast-1", 2.9934},
    {"ecs.gn7i-c48g1.12xlarge", "A10", 1, "ap-southeast-1", 3.592},
    {"ecs.gn7i-c56g1.14xlarge", "A10", 1, "ap-southeast-1", 4.3104},
    {"ecs.gn7i-c8g1.2xlarge", "A10", 1, "ap-southeast-1", 2.5444},
    {NULL, NULL, 0, NULL, -1},
};
const char *const catalog_alibaba_date = "2024-10-16";

double catalog_alibaba_price(const char *type, const char *region) {
    for (const struct catalog_row *r = catalog_alibaba; r->type != NULL; r++)
        if (strcmp(r->type, type) == 0 && strcmp(r->region, region) == 0) return r->usd_per_h;
    return -1;
}

int catalog_alibaba_gpus(const char *type) {
    for (const struct catalog_row *r = catalog_alibaba; r->type != NULL; r++)
        if (strcmp(r->type, type) == 0) return r->gpus;
    return -1;
}

// SPDX-License-Identifier: Apache-2.0
/* GPU types of EC2 and their on-demand list prices, as facts with a date. Prices: us-east-1 only,
 * read 2026-07-20 by the Karpenter project (aws/karpenter-provider-aws 1d927085,
 * zz_generated.pricing_aws.go). A region or type that is not here has no known price; prices of
 * other regions are not used. Types and GPUs: DescribeInstanceTypes of 2026-05. Pure. */
#include "base/gp_base.h"

#include "providers/catalog/catalog.h"

const struct catalog_row catalog_aws[] = {
    {"g4ad.16xlarge", "Radeon Pro V520", 4, "us-east-1", 3.468},
    {"g4ad.2xlarge", "Radeon Pro V520", 1, "us-east-1", 0.54117},
    {"g4ad.4xlarge", "Radeon Pro V520", 1, "us-east-1", 0.867},
    {"g4ad.8xlarge", "Radeon Pro V520", 2, "us-east-1", 1.734},
    {"g4ad.xlarge", "Radeon Pro V520", 1, "us-east-1", 0.37853},
    {"g4dn.12xlarge", "T4", 4, "us-east-1", 3.912},
    {"g4dn.16xlarge", "T4", 1, "us-east-1", 4.352},
    {"g4dn.2xlarge", "T4", 1, "us-east-1", 0.752},
    {"g4dn.4xlarge", "T4", 1, "us-east-1", 1.204},
    {"g4dn.8xlarge", "T4", 1, "us-east-1", 2.176},
    {"g4dn.metal", "T4", 8, "us-east-1", 7.824},
    {"g4dn.xlarge", "T4", 1, "us-east-1", 0.526},
    {"g5.12xlarge", "A10G", 4, "us-east-1", 5.672},
    {"g5.16xlarge", "A10G", 1, "us-east-1", 4.096},
    {"g5.24xlarge", "A10G", 4, "us-east-1", 8.144},
    {"g5.2xlarge", "A10G", 1, "us-east-1", 1.212},
    {"g5.48xlarge", "A10G", 8, "us-east-1", 16.288},
    {"g5.4xlarge", "A10G", 1, "us-east-1", 1.624},
    {"g5.8xlarge", "A10G", 1, "us-east-1", 2.448},
    {"g5.xlarge", "A10G", 1, "us-east-1", 1.006},
    {"g5g.16xlarge", "T4g", 2, "us-east-1", 2.744},
    {"g5g.2xlarge", "T4g", 1, "us-east-1", 0.556},
    {"g5g.4xlarge", "T4g", 1, "us-east-1", 0.828},
    {"g5g.8xlarge", "T4g", 1, "us-east-1", 1.372},
    {"g5g.metal", "T4g", 2, "us-east-1", 2.744},
    {"g5g.xlarge", "T4g", 1, "us-east-1", 0.42},
    {"g6.12xlarge", "L4", 4, "us-east-1", 4.6016},
    {"g6.16xlarge", "L4", 1, "us-east-1", 3.3968},
    {"g6.24xlarge", "L4", 4, "us-east-1", 6.6752},
    {"g6.2xlarge", "L4", 1, "us-east-1", 0.9776},
    {"g6.48xlarge", "L4", 8, "us-east-1", 13.3504},
    {"g6.4xlarge", "L4", 1, "us-east-1", 1.3232},
    {"g6.8xlarge", "L4", 1, "us-east-1", 2.0144},
    {"g6.xlarge", "L4", 1, "us-east-1", 0.8048},
    {"g6e.12xlarge", "L40S", 4, "us-east-1", 10.49264},
    {"g6e.16xlarge", "L40S", 1, "us-east-1", 7.57719},
    {"g6e.24xlarge", "L40S", 4, "us-east-1", 15.06559},
    {"g6e.2xlarge", "L40S", 1, "us-east-1", 2.24208},
    {"g6e.48xlarge", "L40S", 8, "us-east-1", 30.13118},
    {"g6e.4xlarge", "L40S", 1, "us-east-1", 3.00424},
    {"g6e.8xlarge", "L40S", 1, "us-east-1", 4.52856},
    {"g6e.xlarge", "L40S", 1, "us-east-1", 1.861},
    {"g6f.2xlarge", "L4", 0, "us-east-1", 0.475},
    {"g6f.4xlarge", "L4", 0, "us-east-1", 0.95},
    {"g6f.large", "L4", 0, "us-east-1", 0.202},
    {"g6f.xlarge", "L4", 0, "us-east-1", 0.2375},
    {"g7e.12xlarge", "RTX PRO Server 6000", 2, "us-east-1", 8.28608},
    {"g7e.24xlarge", "RTX PRO Server 6000", 4, "us-east-1", 16.57216},
    {"g7e.2xlarge", "RTX PRO Server 6000", 1, "us-east-1", 3.36312},
    {"g7e.48xlarge", "RTX PRO Server 6000", 8, "us-east-1", 33.14432},
    {"g7e.4xlarge", "RTX PRO Server 6000", 1, "us-east-1", 3.99816},
    {"g7e.8xlarge", "RTX PRO Server 6000", 1, "us-east-1", 5.26824},
    {"gr6.4xlarge", "L4", 1, "us-east-1", 1.5392},
    {"gr6.8xlarge", "L4", 1, "us-east-1", 2.4464},
    {"gr6f.4xlarge", "L4", 0, "us-east-1", 1.066},
    {"p3dn.24xlarge", "V100", 8, "us-east-1", 31.212},
    {"p4d.24xlarge", "A100", 8, "us-east-1", 21.957642},
    {"p4de.24xlarge", "A100", 8, "us-east-1", 27.44705},
    {"p5.48xlarge", "H100", 8, "us-east-1", 55.04},
    {"p5.4xlarge", "H100", 1, "us-east-1", 6.88},
    {"p5e.48xlarge", "H200", 8, "", -1},
    {"p5en.48xlarge", "H200", 8, "us-east-1", 63.296},
    {"p6-b200.48xlarge", "B200", 8, "us-east-1", 113.9328},
    {"p6-b300.48xlarge", "B300", 8, "", -1},
    {NULL, NULL, 0, NULL, -1},
};
const char *const catalog_aws_date = "2026-07-20";

const struct catalog_row *catalog_aws_type(const char *type) {
    for (const struct catalog_row *r = catalog_aws; r->type != NULL; r++)
        if (strcmp(r->type, type) == 0) return r;
    return NULL;
}

double catalog_aws_price(const char *type, const char *region) {
    const struct catalog_row *r = catalog_aws_type(type);
    return r != NULL && strcmp(r->region, region) == 0 ? r->usd_per_h : -1;
}

/* Amazon EBS pricing (https://aws.amazon.com/ebs/pricing/), gp3 storage in us-east-1: 0.08 USD for a GB-month, the same
 * since the launch of gp3 in December 2020; IOPS and throughput above gp3's baseline are never requested. A month
 * has 730 hours. */
double catalog_aws_disk_price(int gib, const char *region) {
    return strcmp(region, "us-east-1") == 0 ? gib * 0.08 / 730 : -1;
}

#!/bin/sh
# Once before the workers start: the workspace that they share, the work pools, the deployments.
set -eu
cd /workspace
if [ ! -e params.yaml ]; then
    python -m flows.local.workspace make /workspace
fi
for pool in cpu gpu; do
    prefect work-pool create "$pool" --type process --overwrite
done
prefect --no-prompt deploy --all

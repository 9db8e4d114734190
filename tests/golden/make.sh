#!/usr/bin/env bash
# Makes the runs in this folder anew: real ones, a few minutes on two cores, as small as they can be
# and still have something of every figure. NODE's seed 1 of cifar10 ends early, on purpose.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

images="--seeds 2 --data.train 512 --data.validation 64 --data.test 64 --data.shrink 4 --epochs 2 --network.h 12"
small="--precision 32 --solver.tolerance 1e-4"

compare() {
    hbnode compare "$@" --out tests/golden --overwrite
}

compare descent
compare silverbox --seeds 4
compare point-cloud --models NODE HBNODE HBNODE:fast --seeds 2 --epochs 60 --training.evaluate-every 60
compare mnist --models NODE SONODE HBNODE $images
compare cifar10 --models NODE ANODE HBNODE $images --training.explosion 2.56
compare plane-vibration --models NODE HBNODE --seeds 2 --epochs 6 $small
compare walker2d --models NODE HBNODE GHBNODE --seeds 1 --epochs 3 $small \
    --data.train 512 --data.validation 32 --data.test 32 --training.batch 128

python tests/golden/made_up.py
# What only a run that goes on would need, and the page.
rm -rf tests/golden/*/*/checkpoint tests/golden/*/*/.lock tests/golden/report.html

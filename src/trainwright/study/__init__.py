"""Studies by name: a new one is a request and an answer in `api`, its tables in `cli`, and a line here."""

from collections.abc import Mapping

STUDIES: Mapping[str, str] = {
    "flexible-plans": "plans beyond knobs against systems of 2022 and against all knobs of today",
    "comp-vs-comm": "the share of communication in models and machines to come, from one profiled layer",
    "cluster-design": "parallelization and cluster chosen together: memory, network, cost, what to buy next",
    "scaling": "what more devices give: throughput, power, money and communication as a cluster grows",
    "subnetworks": "independent subnetworks against DiLoCo, compressed gradients and small models, trained",
}

"""Former names of sweeps, and their present ones."""

SWEEPS = {
    "lambda_vs_k": "lambda_vs_k/densities",
    "lambda_vs_k_dense": "lambda_vs_k/dense",
    "lambda_vs_k_madelon": "lambda_vs_k/madelon",
    "lambda_vs_k_matched": "lambda_vs_k/matched",
    "regret_lstm": "regret/lstm",
    "regret_madelon": "regret/madelon",
    "regret_resnet20": "regret/resnet20",
    "three_parameters_dense": "three_parameters/dense",
    "three_parameters_random": "three_parameters/random",
    "three_parameters_top_k": "three_parameters/top_k",
    "topk_convergence": "topk_convergence/compressed",
    "topk_convergence_dense": "topk_convergence/dense",
    "wikitext2_compressed": "wikitext2/top_k",
    "wikitext2_none": "wikitext2/dense",
}

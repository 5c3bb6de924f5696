# Writes reference.json: what R says about fixed samples. Run: Rscript reference.R > reference.json
set.seed(20)
fmt <- function(v) paste0("[", paste(formatC(v, digits = 17, format = "g"), collapse = ", "), "]")
two <- function(name, a, b, exact) {
  w <- suppressWarnings(wilcox.test(a, b, conf.int = exact, exact = exact))
  t <- t.test(a, b)
  paste0('  {"name": "', name, '", "a": ', fmt(a), ', "b": ', fmt(b), ',\n   "p": ', fmt(w$p.value),
    ', "u": ', fmt(w$statistic), if (exact) paste0(', "shift": ', fmt(w$estimate), ', "interval": ', fmt(w$conf.int)),
    ',\n   "welch_p": ', fmt(t$p.value), ', "welch_interval": ', fmt(t$conf.int), ', "welch_df": ', fmt(t$parameter), "}")
}
one <- function(name, d, exact) {
  w <- suppressWarnings(wilcox.test(d, conf.int = exact, exact = exact))
  paste0('  {"name": "', name, '", "d": ', fmt(d), ',\n   "p": ', fmt(w$p.value),
    if (exact) paste0(', "shift": ', fmt(w$estimate), ', "interval": ', fmt(w$conf.int)), "}")
}
loss <- function(x, n) {
  b <- binom.test(x, n)
  paste0('  {"lost": ', x, ', "sent": ', n, ', "interval": ', fmt(b$conf.int), "}")
}
p <- c(0.012, 0.0004, 0.04, 0.5, 0.012, 0.031)
cat("{\n\"r\": \"", R.version.string, "\",\n\"two\": [\n", paste(c(
  two("apart", round(rlnorm(12, 3, 0.4), 3), round(rlnorm(9, 3.6, 0.4), 3), TRUE),
  two("alike", round(rnorm(20, 10, 2), 4), round(rnorm(25, 10.5, 2), 4), TRUE),
  two("tiny", c(1.5, 2.5, 9.25), c(3.5, 4.75, 7.5, 8.125), TRUE),
  two("tied", as.numeric(rpois(40, 3)), as.numeric(rpois(45, 4)), FALSE),
  two("large", round(rexp(70), 5), round(rexp(80, 0.7), 5), FALSE)
), collapse = ",\n"), "\n],\n\"paired\": [\n", paste(c(
  one("small", round(rnorm(10, 0.4, 1), 3), TRUE),
  one("middle", round(rlogis(37, 0.3, 1), 4), TRUE),
  one("large", round(rnorm(120, 0.1, 1), 5), FALSE)
), collapse = ",\n"), "\n],\n\"loss\": [\n", paste(c(loss(0, 10000), loss(3, 5000), loss(7, 7)), collapse = ",\n"),
"\n],\n\"holm\": {\"p\": ", fmt(p), ", \"adjusted\": ", fmt(p.adjust(p, "holm")), "}\n}\n", sep = "")

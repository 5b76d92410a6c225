// The order of what a search finds: pages that say how things are come before those that say why, or what was.
const LAST = /^(docs\/decisions\/|docs\/complaints|CHANGELOG)/;

// Read by Sphinx's searchtools.js; all but `score` are its defaults.
var Scorer = {
  score: ([page, , , , score]) => (LAST.test(page) ? score - 1000 : score),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: {0: 15, 1: 5, 2: -5},
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};

# SPDX-License-Identifier: LGPL-2.1-or-later
# rxe's answers to the questions of tests/verbs: it differs from the software HCA as
# doc/verbs-differences.md lists.
RNR=provoked
ask() { verbs-answers --from rxe2 --to rxe1 --address 10.7.0.1 >/tmp/answers; }
check 400 "all questions can be asked" ask
sed 's/^/answer /' /tmp/answers
check 10 "answers of rxe as known" sh /data/judge rxe /tmp/answers /data/answers /data/verbs-differences.md

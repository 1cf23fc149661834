// A part of abench.c, included in its middle: -m txn. It is a file of its own because the other one had grown long; whoever
// changes only this one touches abench.c too, which is the file that tells whether the program is up to date.

// ---- transactions: as the SDKs do it, each step waits for the outcome of the one before ----

static void txn_failed(pn_delivery_t *d, const char *step) {
  pn_condition_t *why = pn_disposition_condition(pn_delivery_remote(d));
  const char *text = pn_condition_is_set(why) ? pn_condition_get_description(why) : NULL;
  if (!refused) fprintf(stderr, "abench: %s: outcome 0x%lx %s\n", step, (long)pn_delivery_remote_state(d), text ? text : "");
  refused++;
  failed = true;
  close_all();
}

static pn_delivery_t *next_delivery(pn_link_t *link, txn_t *txn) {
  pn_delivery_t *d = pn_delivery(link, pn_dtag((char *)&transfers, TAG_LEN));
  transfers++;
  pn_delivery_set_context(d, txn);
  return d;
}

// declare: an AMQP value, described 0x31, without fields. discharge: described 0x32, id and fail = false.
static void txn_control(conn_t *c, txn_t *txn) {
  static const char declare[] = {0x00, 0x53, 0x77, 0x00, 0x53, 0x31, 0x45};
  char discharge[16 + MAX_TXN_ID] = {0x00, 0x53, 0x77, 0x00, 0x53, 0x32, (char)0xc0, (char)(txn->id_len + 4), 2, (char)0xa0, (char)txn->id_len};
  memcpy(discharge + 11, txn->id, txn->id_len);
  discharge[11 + txn->id_len] = 0x42;
  next_delivery(c->control, txn);
  if (txn->discharging) pn_link_send(c->control, discharge, 12 + txn->id_len);
  else pn_link_send(c->control, declare, sizeof declare);
  pn_link_advance(c->control);
}

static void txn_state(pn_delivery_t *d, txn_t *txn, bool with_outcome) {
  pn_data_t *state = pn_disposition_data(pn_delivery_local(d));
  pn_data_put_list(state);
  pn_data_enter(state);
  pn_data_put_binary(state, pn_bytes(txn->id_len, txn->id));
  if (with_outcome) {
    pn_data_put_described(state);
    pn_data_enter(state);
    pn_data_put_ulong(state, PN_ACCEPTED);
    pn_data_put_list(state);
    pn_data_exit(state);
  }
  pn_data_exit(state);
  pn_delivery_update(d, TXN_STATE);
}

static void txn_operate(conn_t *c, txn_t *txn) {
  txn_state(txn->input, txn, true);
  for (int i = 0; i < txn_sends; i++) {
    pn_delivery_t *d = next_delivery(c->sender, txn);
    txn_state(d, txn, false);
    stamp(sent * txn_sends + i, 0);
    pn_link_send(c->sender, message, message_len);
    pn_link_advance(c->sender);
  }
  txn->unanswered = 1 + txn_sends;
}

static void on_declared(conn_t *c, pn_delivery_t *d, txn_t *txn) {
  pn_data_t *state = pn_disposition_data(pn_delivery_remote(d));
  pn_data_rewind(state);
  if (pn_delivery_remote_state(d) != TXN_DECLARED || !pn_data_next(state) || !pn_data_enter(state) || !pn_data_next(state)) {
    txn_failed(d, "declare");
    return;
  }
  pn_bytes_t id = pn_data_get_binary(state);
  if (id.size > MAX_TXN_ID) die("the id of a transaction is too long");
  memcpy(txn->id, id.start, txn->id_len = id.size);
  pn_delivery_settle(d);
  txn_operate(c, txn);
}

static void on_discharged(conn_t *c, pn_delivery_t *d, txn_t *txn) {
  if (pn_delivery_remote_state(d) != PN_ACCEPTED) {
    txn_failed(d, "discharge");
    return;
  }
  pn_delivery_settle(d);
  free(txn);
  last_at = progress_at = now();
  accepted++;
  if (accepted >= count || (accepted >= sent && out_of_time())) close_all();
  else if (credit_given < count && !out_of_time()) credit_given++, pn_link_flow(c->receiver, 1);
}

// Each message that comes is worked off in a transaction of its own.
static void on_txn_delivery(conn_t *c, pn_link_t *link, pn_delivery_t *d) {
  if (closing) return;
  txn_t *txn = pn_delivery_get_context(d);
  if (link == c->control) {
    if (pn_delivery_updated(d)) (txn->discharging ? on_discharged : on_declared)(c, d, txn);
  } else if (!txn && pn_delivery_readable(d) && !pn_delivery_partial(d)) {
    size_t n = pn_delivery_pending(d);
    pn_link_recv(link, scratch, n < MAX_MESSAGE ? n : MAX_MESSAGE);
    pn_link_advance(link);
    txn = calloc(1, sizeof *txn);
    txn->input = d;
    pn_delivery_set_context(d, txn);
    if (!first_at) first_at = now();
    sent++;
    txn_control(c, txn);
  } else if (txn && pn_delivery_updated(d)) {
    if (pn_delivery_remote_state(d) != TXN_STATE) {
      txn_failed(d, link == c->sender ? "send" : "complete");
      return;
    }
    pn_delivery_settle(d);
    if (--txn->unanswered > 0) return;
    txn->discharging = true;
    txn_control(c, txn);
  }
}

static void open_transacting(conn_t *c, pn_session_t *session, const char *name) {
  char other[80];
  snprintf(other, sizeof other, "%s-control", name);
  c->control = pn_sender(session, other);
  pn_terminus_set_type(pn_link_target(c->control), PN_COORDINATOR);
  c->sender = pn_sender(session, name);
  pn_terminus_set_address(pn_link_target(c->sender), address);
  c->receiver = pn_receiver(session, name);
  pn_terminus_set_address(pn_link_source(c->receiver), address);
  for (pn_link_t *link = pn_link_head(pn_session_connection(session), 0); link; link = pn_link_next(link, 0)) {
    pn_link_set_snd_settle_mode(link, PN_SND_UNSETTLED);
    pn_link_open(link);
  }
  give_credit(c->receiver);
}
